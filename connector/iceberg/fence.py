"""The fence: one table property per lineage, by which a table says which transactions it holds.

It is set by the very commit that adds a transaction's files, from the value that they were staged on (`prev`) to a new
random one (`next`). Who finds neither has been replaced. Everything here is a pure function of property values and
staged commits; docs/decisions/0002 and the consistency page have the argument.
"""

import hashlib
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connector.errors import FencedError
from connector.state import Lineage, StagedCommit

PREFIX: Final = "flow.fence."
CLOSED: Final = "closed:"
NONE: Final = ""  # the value of a lineage that has never committed and follows no other
POSITION_DIGITS: Final = 8
FIRST_POSITION: Final = "0" * POSITION_DIGITS
# The value of a lineage that has never committed, while what it follows still waits to land and will change it.
UNSETTLED: Final = "0" * 32

FIRST: Final = "first"
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FILE_NAME: Final = re.compile(
    "(?:snap-[0-9]+-)?(?P<lineage>[0-9a-f]{16})-(?P<range>[0-9a-f]{8}-[0-9a-f]{8})-"
    rf"(?P<table>{_UUID})-(?P<value>{FIRST}|(?:closed-(?:[0-9a-f]{{8}}-)?)?[0-9a-f]{{32}}|closed-(?:[0-9a-f]{{8}}-)?)-"
    rf"{_UUID}(?:\.parquet|-m0\.avro|\.avro|-files\.json)"
)


def new_value(prev: str = NONE) -> str:
    """32 hexadecimal digits: the position after `prev`'s, and 96 random bits. Never derived from the checkpoint, which
    two processes may share."""
    return f"{position(prev) + 1:0{POSITION_DIGITS}x}{secrets.token_hex(12)}"


def reset_value(value: str) -> str:
    """A value that tells a recovery what `value` would, but that no process has ever read, and so none builds on: the
    files that a stale one staged on `value` itself may have been deleted since."""
    return f"{CLOSED}{secrets.token_hex(4)}:{_without_closed(value)}"


def position(value: str) -> int:
    """How many transactions lie behind a value: what two values of one lineage are ordered by."""
    return int(_without_closed(value)[:POSITION_DIGITS] or "0", 16)


def lineage_hash(lineage: Lineage) -> str:
    """16 hexadecimal digits for (materialization, state key): Glue's parameter names end at 255 characters."""
    return hashlib.sha256(f"{lineage.materialization}\0{lineage.state_key}".encode()).hexdigest()[:16]


def property_name(lineage: Lineage) -> str:
    return f"{PREFIX}{lineage_hash(lineage)}.{lineage.key_range}"


def file_prefix(lineage: Lineage, table_uuid: str, prev: str) -> str:
    """What the names of the files begin with that are staged on a value: `FileOrigin` reads it."""
    return f"{lineage_hash(lineage)}-{lineage.key_range}-{table_uuid}-{(prev or FIRST).replace(':', '-')}"


@dataclass(frozen=True)
class FileOrigin:
    """What the name of a file of ours proves: whose it is, for which table, and on which fence value it was staged."""

    lineage_hash: str
    key_range: str
    table_uuid: str
    prev: str

    @classmethod
    def of(cls, name: str) -> "FileOrigin | None":
        match = FILE_NAME.fullmatch(name)
        if match is None:
            return None
        value = "" if match["value"] == FIRST else match["value"].replace("-", ":")
        return cls(match["lineage"], match["range"], match["table"], value)

    @property
    def property_name(self) -> str:
        return f"{PREFIX}{self.lineage_hash}.{self.key_range}"


def staged_on(recorded: str, *, follows_waiting: bool) -> str:
    """What a session stages its first transaction on, given the value that it has read. Where a table has refused the
    commits of a range that overlaps its own, they land later, under the session's eyes: that is no successor's doing."""
    return UNSETTLED if follows_waiting and _is_first(recorded) else recorded


def recorded(properties: Mapping[str, str], lineage: Lineage) -> str:
    """The lineage's last committed fence value; one that a successor closed still says `closed:`.

    A lineage that has never committed has the value of what it follows: of the ranges that overlap it. Without them it
    would find nothing changed when one of them has taken over meanwhile, since there is nothing yet to close.
    """
    return properties.get(property_name(lineage)) or _followed(properties, lineage)


def _followed(properties: Mapping[str, str], lineage: Lineage) -> str:
    prefix = f"{PREFIX}{lineage_hash(lineage)}."
    overlapping = {
        key_range: _without_closed(value)
        for name, value in properties.items()
        if name.startswith(prefix) and lineage.overlaps(key_range := name.removeprefix(prefix))
    }
    if not overlapping:
        return NONE
    digest = hashlib.sha256(repr(sorted(overlapping.items())).encode()).hexdigest()
    return f"{FIRST_POSITION}{digest[:24]}"


def chain(staged: Sequence[StagedCommit]) -> list[StagedCommit]:
    """One lineage's staged commits into one table, oldest first; each was staged on the one before."""
    by_prev = {commit.prev: commit for commit in staged}
    nexts = {commit.next for commit in staged}
    first = [commit for commit in staged if commit.prev not in nexts]
    ordered = first[:1]
    while ordered and ordered[-1].next in by_prev:
        ordered.append(by_prev[ordered[-1].next])
    assert len(ordered) == len(staged), "the staged commits of a lineage form one chain"
    return ordered


def unlanded(chain: Sequence[StagedCommit], value: str, *, is_recovery: bool) -> Sequence[StagedCommit]:
    """What the table still lacks of a lineage's chain, given the recorded value; FencedError where it fits none.

    A closed value says which transactions landed just as it did before. But only a recovery may build on it: to the
    process that staged on the open value it says that a successor holds its key range now.
    """
    landed = _without_closed(value)
    rest: Sequence[StagedCommit] | None = None
    for index, commit in enumerate(chain):
        if landed == commit.next:
            rest = chain[index + 1 :]
    prev = _without_closed(chain[0].prev)
    # What a lineage follows may move on while its first transaction waits. The log committed it, so it is to land.
    is_first = _is_first(landed) and (prev == UNSETTLED or (is_recovery and _is_first(prev)))
    if rest is None and (landed == prev or is_first):
        rest = chain
    may_build_on = is_recovery or not value.startswith(CLOSED) or value == chain[0].prev
    if rest is None or (rest and not may_build_on):
        raise _fenced(chain[0], value)
    return rest


def advanced(properties: Mapping[str, str], newest: StagedCommit, key_range: str | None) -> dict[str, str]:
    """The properties that the commit of everything up to `newest` sets; `key_range` is the committing process's own
    (None: it holds none).

    Its own commit closes every range that overlaps its own: whoever still writes under one of those has been replaced.
    What it finishes for another range is closed at once.
    """
    lineage = newest.lineage
    if lineage.key_range != key_range:
        return {property_name(lineage): CLOSED + newest.next}
    own, prefix = property_name(lineage), f"{PREFIX}{lineage_hash(lineage)}."
    closed = {
        name: CLOSED + value
        for name, value in properties.items()
        if name.startswith(prefix) and name != own and lineage.overlaps(name.removeprefix(prefix))
        if not value.startswith(CLOSED)
    }
    return closed | {own: newest.next}


def _fenced(staged: StagedCommit, value: str) -> FencedError:
    """The error of a process that finds a value it cannot explain."""
    lineage = staged.lineage
    return FencedError(
        f"table {'.'.join(staged.path)}: another process has taken over {lineage.materialization} "
        f"(state key {lineage.state_key}, key range {lineage.key_range}): the table's property "
        f"{property_name(lineage)} is {'absent' if _is_first(value) else value}, where this process expected {staged.prev or 'none'} or "
        f"{staged.next}. This process stops and adds nothing. If no other process runs this task, its state was "
        f"restored from an older copy or the table was changed by hand: see `{_show_command(staged)}`, and reset the "
        "fence with `materialize-iceberg fence reset` only when you know which rows are right."
    )


def _show_command(staged: StagedCommit) -> str:
    table, materialization = shlex.quote(".".join(staged.path)), shlex.quote(staged.lineage.materialization)
    return (
        f"materialize-iceberg fence show --table {table} --materialization {materialization} --config CONFIG.json "
        "--state STATE.json"
    )


def _is_first(value: str) -> bool:
    """Whether it is the value of a lineage that has never committed."""
    return value == NONE or value.startswith(FIRST_POSITION)


def _without_closed(value: str) -> str:
    return value.rpartition(":")[2]
