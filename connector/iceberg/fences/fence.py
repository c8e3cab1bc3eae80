"""The fence: one table property for each writer. It says which transactions the table has.

The commit that adds a transaction's files also sets the fence, from the value that they were staged on (`prev`) to a
new random one (`next`). A process that finds neither value has been replaced. So has a session that finds a value that
it does not know for a writer with an overlapping key range.

Everything here follows from property values and staged commits alone, except for the random part of a new value.
docs/consistency.md explains why the promise holds; decisions 2, 5 and 7 have the reasons.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from connector.host.errors import UserError
from connector.host.groups import group_by
from connector.iceberg.fences import fence_errors
from connector.model.state import KEY_RANGE, RECORDED_VALUE, Known, StagedCommit, TableId, WriterId, strip_marks
from connector.model.table_identifier import Owner, TableIdentifier

PREFIX: Final = "flow.fence."
CLOSED: Final = "closed:"
NONE: Final = ""  # the value of a writer that has never committed
FIRST: Final = "first"  # in names of files: no value
ORDINAL_DIGITS: Final = 8
_RECORDED: Final = re.compile(RECORDED_VALUE)
_PROPERTY: Final = re.compile(rf"{re.escape(PREFIX)}[0-9a-f]{{20}}\.{KEY_RANGE}")


def new_value(prev: str = NONE) -> str:
    """Make 32 hexadecimal digits: the ordinal number after that of `prev`, and 96 random bits.

    They are not derived from the checkpoint, since two processes may have the same one. UserError after the last
    number: only a value that was set by hand can be near it.
    """
    following = read_ordinal(prev) + 1
    if following >= 16**ORDINAL_DIGITS:
        raise UserError(f"no fence value can follow {prev}, which has the last ordinal number. Backfill the binding.")
    return f"{following:0{ORDINAL_DIGITS}x}{secrets.token_hex(12)}"


def read_ordinal(value: str) -> int:
    """Return the number of transactions up to a value. It orders the values of a writer."""
    return int(strip_marks(value)[:ORDINAL_DIGITS] or "0", 16)


def is_recorded_value(value: str) -> bool:
    """Whether a connector may have written this value to a table's property."""
    return _RECORDED.fullmatch(value) is not None


def is_property_name(name: str) -> bool:
    """Whether a connector may have given a fence property this name."""
    return _PROPERTY.fullmatch(name) is not None


def check_recorded(table: TableIdentifier, properties: Mapping[str, str], writer: WriterId) -> None:
    """Raise FencedError if a fence property of this materialization has a name or value that no connector writes."""
    prefix = PREFIX + materialization_hash(writer.materialization)
    for name, value in properties.items():
        if name.startswith(prefix) and not (is_property_name(name) and is_recorded_value(value)):
            raise fence_errors.explain_unknown_value(table, writer, name, value)


def materialization_hash(materialization: str) -> str:
    """Return 12 hexadecimal digits."""
    return _hash(materialization)[:12]


def writer_hash(writer: WriterId | Owner) -> str:
    """Return 20 hexadecimal digits for a materialization and a state key. Glue limits the names of properties.

    The first 12 are the materialization's: a task recognizes its own writers by them, under all state keys.
    """
    return materialization_hash(writer.materialization) + _hash(f"{writer.materialization}\0{writer.state_key}")[:8]


def file_prefix(writer: WriterId, table_uuid: str, prev: str) -> str:
    """Return the beginning of the names of files that are staged on a fence value; `file_names` reads it.

    A property that was changed by hand never becomes part of a path.
    """
    return file_prefix_of_property(property_name(writer), table_uuid, prev)


def file_prefix_of_property(name: str, table_uuid: str, prev: str) -> str:
    """Return the same for the writer of a fence property."""
    value = prev if is_recorded_value(prev) else FIRST
    return f"{name.removeprefix(PREFIX).replace('.', '-')}-{table_uuid}-{value.replace(':', '-')}"


def property_name(writer: WriterId) -> str:
    """Return the name of the writer's fence property."""
    return f"{PREFIX}{writer_hash(writer)}.{writer.key_range}"


def read_value(properties: Mapping[str, str], writer: WriterId) -> str:
    """Return the writer's last committed fence value, with `closed:` before it if a successor has closed it."""
    return properties.get(property_name(writer), NONE)


def count_lost(properties: Mapping[str, str], writer: WriterId, had: str) -> int:
    """Return how many transactions a table lacks of those that it had, the last of them with the fence value `had`.

    If there are any, the table is older than the state. A value that no connector writes does not say so.
    """
    return _count_lost(properties.get(property_name(writer)), had)


def _count_lost(recorded: str | None, had: str) -> int:
    if recorded is None:
        return read_ordinal(had)
    return max(0, read_ordinal(had) - read_ordinal(recorded)) if is_recorded_value(recorded) else 0


def find_writer_hashes(properties: Mapping[str, str]) -> set[str]:
    """Return the hashes of the writers that have a fence value, for any key range."""
    return {name.removeprefix(PREFIX).partition(".")[0] for name in properties if name.startswith(PREFIX)}


def has_written(properties: Mapping[str, str], materialization: str) -> bool:
    """Whether a table has a fence value of a materialization, for any state key and key range."""
    return any(name.startswith(PREFIX + materialization_hash(materialization)) for name in properties)


def find_overlapping_fences(properties: Mapping[str, str], writer: WriterId) -> dict[str, str]:
    """Return the fence properties of the materialization whose key ranges overlap the writer's, its own included.

    Their state keys may differ: a backfill that keeps the table's rows begins with a new state key.
    """
    prefix = PREFIX + materialization_hash(writer.materialization)
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(prefix) and writer.overlaps(name.rpartition(".")[2])
    }


class LastFences:
    """Knows the last fence values that the tables of a session had, as it opened and after its commits. A table with
    an older one is an older copy: a catalog may read from a replica or a cache."""

    def __init__(self) -> None:
        self._values: dict[TableId, Mapping[str, str]] = {}  # by property

    def note_opened(self, table: TableId, properties: Mapping[str, str], writer: WriterId) -> None:
        """Keep the values of all writers whose rows the session may replace, unless a commit has a newer one."""
        values, had = find_overlapping_fences(properties, writer), self.find(table)
        newer = {
            name: value for name, value in had.items() if read_ordinal(value) > read_ordinal(values.get(name, NONE))
        }
        self._values[table] = {**values, **newer}

    def note_committed(self, commit: StagedCommit) -> None:
        """Keep the value of a commit that its table has."""
        # Not changed in place: another thread may be reading it.
        self._values[commit.table_id] = {**self.find(commit.table_id), property_name(commit.writer): commit.next}

    def find(self, table: TableId) -> Mapping[str, str]:
        """Return the last values of a table, by property. Read them before the table: a commit may follow."""
        return self._values.get(table, {})


def explain_older_answer(properties: Mapping[str, str], had: Mapping[str, str]) -> str:
    """Say which fence property has an older value than the table `had`: then this is an older copy. "" if none has."""
    older = (name for name, value in had.items() if _count_lost(properties.get(name), value))
    texts = (fence_errors.describe_older_value(name, properties.get(name, "absent"), had[name]) for name in older)
    return next(texts, "")


@dataclass(frozen=True)
class WriterFence:
    """The fence of one writer of a table in this session: the value that its next transaction is staged on, and the
    values of overlapping writers that the session knows."""

    prev: str  # the value that its next transaction is staged on
    in_file_names: str  # the value in the names of that transaction's files
    known: Known

    @classmethod
    def begin(cls, properties: Mapping[str, str], writer: WriterId, waiting: Sequence[StagedCommit]) -> "WriterFence":
        """Begin with the properties that the session read when it opened. Read later, they could be a successor's.

        `waiting` are the pending commits of overlapping writers that earlier sessions have staged. They will be
        committed during this session, and must not be taken for a successor's commits.
        """
        ours = order_commits([commit for commit in waiting if commit.writer == writer])
        prev = ours[-1].next if ours else read_value(properties, writer)
        known = {name: {value, _close(value)} for name, value in find_overlapping_fences(properties, writer).items()}
        for commit in waiting:
            known.setdefault(property_name(commit.writer), set()).update((commit.next, _close(commit.next)))
        in_file_names = prev
        if waiting:
            # A pending commit may still close our own value. A stale process takes files that were staged on a closed
            # value for orphans. But it leaves files alone whose names have a value that is still to come.
            in_file_names = new_value(prev)
        else:
            known.pop(property_name(writer), None)
        return cls(prev, in_file_names, {name: frozenset(values) for name, values in known.items()})

    def after(self, staged: StagedCommit) -> "WriterFence":
        """Return the fence after another transaction is staged."""
        return replace(self, prev=staged.next, in_file_names=staged.next)


def group_by_writer(staged: Iterable[StagedCommit]) -> list[list[StagedCommit]]:
    """Return the staged commits of one table by writer, in the order in which the table gets them.

    What earlier sessions have staged comes first. A session's own commit closes the fence values that it was staged on,
    and files that were staged on a closed value may be deleted.
    """
    by_writer = group_by(staged, lambda commit: commit.writer)
    in_order = sorted(by_writer, key=lambda writer: (writer.state_key, writer.key_range))
    chains = [order_commits(by_writer[writer]) for writer in in_order]
    return sorted(chains, key=lambda commits: not commits[-1].is_recovered)


def order_commits(staged: Sequence[StagedCommit]) -> list[StagedCommit]:
    """Return the staged commits of one writer and one table, oldest first. Each was staged on the one before."""
    by_prev = {commit.follows: commit for commit in staged}
    nexts = {commit.next for commit in staged}
    first = [commit for commit in staged if commit.follows not in nexts]
    ordered = first[:1]
    while ordered and ordered[-1].next in by_prev:
        ordered.append(by_prev[ordered[-1].next])
    assert len(ordered) == len(staged), "read_state refuses commits that form no chain"
    return ordered


def remaining_commits(pending: Sequence[StagedCommit], properties: Mapping[str, str]) -> Sequence[StagedCommit]:
    """Return the commits that the table does not have yet, of the ordered ones of one writer.

    FencedError if the table's properties say that another process has taken over, and OlderTableError if the table is
    older than the commits. Rows that the runtime's log has committed must be added. A closed value still says what the
    table has, so a recovery may commit after it. A session may commit its own transactions only while every overlapping
    writer has a value that the session knows.
    """
    first, writer = pending[0], pending[0].writer
    check_recorded(first.path, properties, writer)
    name, value = property_name(writer), read_value(properties, writer)
    remaining = _after_value(pending, strip_marks(value))
    if remaining is None:
        if lost := count_lost(properties, writer, first.follows):
            raise fence_errors.explain_lost(first.path, writer, lost, first.follows, name, value)
        raise fence_errors.explain_fenced(first, name, value)
    if any(not commit.is_recovered for commit in remaining):
        _check_known(pending, properties)
    return remaining


def _after_value(pending: Sequence[StagedCommit], value: str) -> Sequence[StagedCommit] | None:
    if value == pending[0].follows:
        return pending
    return next((pending[index + 1 :] for index, commit in enumerate(pending) if commit.next == value), None)


def _check_known(pending: Sequence[StagedCommit], properties: Mapping[str, str]) -> None:
    """Raise FencedError if another process has taken over a part of the key range, even under another state key.

    Such a process commits under a property of its own, or under ours. Both are compared here. OlderTableError if a
    value is older than all that the session knows for its property.
    """
    own, newest = property_name(pending[0].writer), pending[-1]
    for name, value in find_overlapping_fences(properties, newest.writer).items():
        known = newest.known.get(name, frozenset())
        if value in known or (name == own and value in {pending[0].prev, *(commit.next for commit in pending)}):
            continue
        if older := explain_older_answer(properties, {name: min(sorted(known), key=read_ordinal, default=NONE)}):
            raise fence_errors.explain_lagging(newest.path, older)
        raise fence_errors.explain_fenced(newest, name, value, "" if name == own else "nothing newer than it has read")


def advance(properties: Mapping[str, str], newest: StagedCommit) -> dict[str, str]:
    """Return the properties to set in the commit of everything up to `newest`.

    A session's own commit closes every overlapping key range. A recovery closes its own value at once. A process that
    still writes on a closed value has been replaced, and its staged files may be deleted.
    """
    own = property_name(newest.writer)
    if newest.is_recovered:
        return {own: _close(newest.next)}
    closed = {name: _close(value) for name, value in find_overlapping_fences(properties, newest.writer).items()}
    return {name: value for name, value in closed.items() if value != properties[name]} | {own: newest.next}


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _close(value: str) -> str:
    return value if value.startswith(CLOSED) else CLOSED + value
