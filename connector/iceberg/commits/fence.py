"""The fence: one table property per writer, by which a table says which transactions it holds.

It is set by the very commit that adds a transaction's files, from the value that they were staged on (`prev`) to a new
random one (`next`). Who finds neither has been replaced, and so has a session that finds another value than it knows of
for a writer that overlaps its own. Everything here is a pure function of property values and staged commits;
docs/consistency.md has the argument, decisions 2, 5 and 7 the reasons.
"""

import hashlib
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from connector.host.errors import FencedError, UserError
from connector.model.state import KEY_RANGE, RECORDED_VALUE, Known, StagedCommit, WriterId

PREFIX: Final = "flow.fence."
CLOSED: Final = "closed:"
NONE: Final = ""  # the value of a writer that has never committed
POSITION_DIGITS: Final = 8
_RECORDED: Final = re.compile(RECORDED_VALUE)
_PROPERTY: Final = re.compile(rf"{re.escape(PREFIX)}[0-9a-f]{{20}}\.{KEY_RANGE}")


def new_value(prev: str = NONE) -> str:
    """32 hexadecimal digits: the position after `prev`'s, and 96 random bits. Never derived from the checkpoint, which
    two processes may share. UserError after the last position, which only a value that was set by hand comes near."""
    following = position(prev) + 1
    if following >= 16**POSITION_DIGITS:
        raise UserError(f"no fence value can follow {prev}, which has the last position. Backfill the binding.")
    return f"{following:0{POSITION_DIGITS}x}{secrets.token_hex(12)}"


def reset_value(value: str) -> str:
    """Means the same as `value` to a recovery, but no process has read it yet, so that none builds on it: files that a
    stale process has staged on `value` itself may have been deleted since."""
    return f"{CLOSED}{secrets.token_hex(4)}:{_without_closed(value)}"


def position(value: str) -> int:
    """The number of transactions up to a value, by which a writer's values are ordered."""
    return int(_without_closed(value)[:POSITION_DIGITS] or "0", 16)


def is_passed(value: str, recorded: str) -> bool:
    """Whether nothing that was staged on `value` can land any more, whatever the state names.

    A value with a later position is still to come, and a property that was changed by hand proves nothing. After a
    reset, what the operator has decided to add is staged on the value that was reset, which is not passed either.
    """
    is_reset = recorded.count(":") > 1
    return is_recorded_value(recorded) and value != recorded and position(value) <= position(recorded) - is_reset


def is_recorded_value(value: str) -> bool:
    """Whether a table's property may have this value: it has a position, and says who may commit next."""
    return _RECORDED.fullmatch(value) is not None


def check_recorded(table: str, properties: Mapping[str, str], writer: WriterId) -> None:
    """FencedError where a property of the materialization's writers is none that a connector has written."""
    prefix = PREFIX + materialization_hash(writer)
    for name, value in properties.items():
        if name.startswith(prefix) and not (_PROPERTY.fullmatch(name) and is_recorded_value(value)):
            raise FencedError(
                f"table {table}: the property {name} is {value!r}, which is no fence value of this connector: it was "
                "changed by hand or by another engine. This process stops and adds nothing. Set the property to its "
                f"last value, which the newest snapshot of {writer.materialization} has in its summary as flow.fence. "
                "If rows are staged, `materialize-iceberg fence reset` can set it. Or backfill the binding."
            )


def materialization_hash(writer: WriterId) -> str:
    return _hash(writer.materialization)[:12]


def writer_hash(writer: WriterId) -> str:
    """20 hexadecimal digits for (materialization, state key): Glue's parameter names end at 255 characters. The first
    12 are the materialization's: a task recognises its own writers whatever their state keys were."""
    return materialization_hash(writer) + _hash(f"{writer.materialization}\0{writer.state_key}")[:8]


def property_name(writer: WriterId) -> str:
    return f"{PREFIX}{writer_hash(writer)}.{writer.key_range}"


def read_value(properties: Mapping[str, str], writer: WriterId) -> str:
    """The writer's last committed fence value, with `closed:` if a successor has closed it."""
    return properties.get(property_name(writer), NONE)


def find_overlapping(properties: Mapping[str, str], writer: WriterId) -> dict[str, str]:
    """By property, the values of the materialization's writers whose key ranges overlap this one's, itself included.
    Their state keys may differ: a backfill that keeps the table's rows begins a new one."""
    prefix = PREFIX + materialization_hash(writer)
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(prefix) and writer.overlaps(name.rpartition(".")[2])
    }


@dataclass(frozen=True)
class Tenure:
    """A session's hold of a writer in one table: what its next transaction is staged on."""

    prev: str
    in_file_names: str
    known: Known

    @classmethod
    def begin(cls, properties: Mapping[str, str], writer: WriterId, waiting: Sequence[StagedCommit]) -> "Tenure":
        """From the table as the session finds it when it opens: later, a stale process would adopt its successor's
        values.

        `waiting` is what earlier sessions have staged for overlapping writers and the table has not taken yet. It will
        land during this session, and must not be taken for a successor's commit.
        """
        ours = chain([commit for commit in waiting if commit.writer == writer])
        prev = ours[-1].next if ours else read_value(properties, writer)
        known = {name: {value, _close(value)} for name, value in find_overlapping(properties, writer).items()}
        for commit in waiting:
            known.setdefault(property_name(commit.writer), set()).update((commit.next, _close(commit.next)))
        in_file_names = prev
        if waiting:
            # What waits may still close our own value, and a stale collector takes what was staged on a closed value
            # for left behind. Files whose names bear a value that is still to come are left alone.
            in_file_names = new_value(prev)
        else:
            known.pop(property_name(writer), None)
        return cls(prev, in_file_names, {name: frozenset(values) for name, values in known.items()})

    def after(self, staged: StagedCommit) -> "Tenure":
        return replace(self, prev=staged.next, in_file_names=staged.next)


def chains(staged: Iterable[StagedCommit]) -> list[list[StagedCommit]]:
    """The staged commits into one table as chains, one for each writer."""
    by_writer: dict[WriterId, list[StagedCommit]] = {}
    for commit in staged:
        by_writer.setdefault(commit.writer, []).append(commit)
    in_order = sorted(by_writer, key=lambda writer: (writer.state_key, writer.key_range))
    return [chain(by_writer[writer]) for writer in in_order]


def chain(staged: Sequence[StagedCommit]) -> list[StagedCommit]:
    """One writer's staged commits into one table, oldest first; each was staged on the one before."""
    by_prev = {commit.prev_value: commit for commit in staged}
    nexts = {commit.next for commit in staged}
    first = [commit for commit in staged if commit.prev_value not in nexts]
    ordered = first[:1]
    while ordered and ordered[-1].next in by_prev:
        ordered.append(by_prev[ordered[-1].next])
    assert len(ordered) == len(staged), "read_state refuses what forms no chain"
    return ordered


def remaining_commits(chain: Sequence[StagedCommit], properties: Mapping[str, str]) -> Sequence[StagedCommit]:
    """What the table still lacks of a writer's chain; FencedError where its properties say that another process has
    taken over.

    What the log has committed must land; a closed value still says what has landed, so a recovery may build on it. A
    session may build on its own transactions only while every overlapping writer has a value that it knows.
    """
    check_recorded(".".join(chain[0].path), properties, chain[0].writer)
    value = read_value(properties, chain[0].writer)
    rest = _behind(chain, _without_closed(value))
    if rest is None:
        raise _explain_fenced(chain[0], property_name(chain[0].writer), value)
    if any(not commit.is_recovered for commit in rest):
        _check_known(chain, properties)
    return rest


def _behind(chain: Sequence[StagedCommit], landed: str) -> Sequence[StagedCommit] | None:
    if landed == chain[0].prev_value:
        return chain
    return next((chain[index + 1 :] for index, commit in enumerate(chain) if commit.next == landed), None)


def _check_known(chain: Sequence[StagedCommit], properties: Mapping[str, str]) -> None:
    """Whoever takes over a part of the key range, even under another state key, commits under its own property or under
    ours: both are noticed here."""
    own, newest = property_name(chain[0].writer), chain[-1]
    for name, value in find_overlapping(properties, newest.writer).items():
        is_ours = name == own and (value == chain[0].prev or any(value == commit.next for commit in chain))
        if not is_ours and value not in newest.known.get(name, ()):
            raise _explain_fenced(newest, name, value)


def advance(properties: Mapping[str, str], newest: StagedCommit) -> dict[str, str]:
    """The properties that the commit of everything up to `newest` sets.

    A session's own commit closes every range that overlaps its own, and what a recovery finishes is closed at once:
    whoever still writes there has been replaced, and what it has staged may be deleted.
    """
    own = property_name(newest.writer)
    if newest.is_recovered:
        return {own: _close(newest.next)}
    closed = {name: _close(value) for name, value in find_overlapping(properties, newest.writer).items()}
    return {name: value for name, value in closed.items() if value != properties[name]} | {own: newest.next}


def _explain_fenced(staged: StagedCommit, name: str, value: str) -> FencedError:
    """The error of a process that finds a value it cannot explain."""
    writer = staged.writer
    expected = (
        f"{staged.prev or 'none'} or {staged.next}"
        if name == property_name(writer)
        else "nothing newer than it has read"
    )
    return FencedError(
        f"table {'.'.join(staged.path)}: another process has taken over {writer.materialization} "
        f"(state key {writer.state_key}, key range {writer.key_range}): the table's property {name} is "
        f"{value or 'absent'}, where this process expected {expected}. This process stops and adds nothing. If no "
        "other process runs this task, its state was restored from an older copy or the table was changed by hand: see "
        f"`{_show_command(staged)}`, and reset the fence with `materialize-iceberg fence reset` only when you know "
        "which rows are right."
    )


def _show_command(staged: StagedCommit) -> str:
    table, materialization = shlex.quote(".".join(staged.path)), shlex.quote(staged.writer.materialization)
    return (
        f"materialize-iceberg fence show --table {table} --materialization {materialization} --config CONFIG.json "
        "--state STATE.json"
    )


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _close(value: str) -> str:
    return value if value.startswith(CLOSED) else CLOSED + value


def _without_closed(value: str) -> str:
    return value.rpartition(":")[2]
