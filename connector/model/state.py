"""The connector state: all that a later session needs to finish a transaction, on any machine.

Its form is `{"bindingStates": {state key: {key range: {next fence value: entry}}}}`. An entry is a StagedCommit without
the facts that its place in the state shows. A patch (RFC 7396) adds an entry, or deletes it with null. A patch never
replaces an object that another shard may be writing. `state_reader` reads the state, and checks all of it.

Beside them, `{"finished": {state key: {key range: {table UUID: fence value}}}}` has, for each writer and table, the
newest commit that was removed from the entries. Images that do not know it leave it as it is.

Every entry has a version, because shards of different images may write side by side. An image refuses a version that
it does not know. To add a field to an entry, change VERSION, and add the field to ADDED_IN of `state_reader`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from connector.model.binding import Updates
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import KEY_END, Json

VERSION: Final = 6

FENCE_VALUE: Final = "[0-9a-f]{32}"
# A value, a value that was closed, or a value that was reset (from none, too). See `iceberg/fences/fence`.
RECORDED_VALUE: Final = f"(?:closed:)?{FENCE_VALUE}|closed:[0-9a-f]{{8}}:(?:{FENCE_VALUE})?"
KEY_RANGE: Final = "[0-9a-f]{8}-[0-9a-f]{8}"
UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Int: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # Iceberg's int
_Long: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # Iceberg's long

BOUND_LENGTH: Final = 16  # characters or bytes, to which longer bounds are cut: Iceberg's default, truncate(16)

_read_long: Final = partial(int.from_bytes, byteorder="little", signed=True)


class ColumnStatistics(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Statistics of one column of a data file, in Iceberg's form."""

    field_id: Int
    size: _Long  # compressed bytes
    values: _Long  # rows, nulls included
    nulls: _Long | None
    lower: bytes | None  # Iceberg's single-value serialization
    upper: bytes | None


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A data file that a Spark task has written: its manifest entry in compact form."""

    path: Name
    rows: _Long
    size: _Long  # bytes
    splits: tuple[_Long, ...]  # where its row groups begin
    columns: tuple[ColumnStatistics, ...]
    # The values of the partition spec's fields, in its order, in Iceberg's single-value serialization.
    partition: tuple[bytes | None, ...] = ()

    def find_range(self, column_id: int) -> tuple[int, int] | None:
        """Return the smallest and largest value of a column of times, in microseconds. None if one is not known."""
        for column in self.columns:
            if column.field_id == column_id and column.lower is not None and column.upper is not None:
                return _read_long(column.lower), _read_long(column.upper)
        return None


class FileList(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object that lists data files, if they are too many for the state. See `storage/file_io`."""

    location: Name
    file_count: _Long
    rows: _Long
    size: _Long  # bytes of the data files


class LocatedRowsFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the Loads of a transaction have found: an object that lists the rows which its commit deletes. See
    `encoding/search/located_rows`."""

    location: Name | None  # None: they have found no rows
    rows: _Long
    snapshot_id: _Long | None  # the table's snapshot that was searched; None: it had none


class EntryBase(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The part of an entry that all versions have."""

    table_uuid: Annotated[str, Meta(pattern=rf"^(?:{UUID})\Z")]
    spec_id: Int
    schema_id: Int
    files: tuple[DataFile, ...] = ()
    file_list: FileList | None = None  # instead of files
    checkpoint: str = ""
    # Absent if it is fence.NONE: in a merge patch, null would mean to delete it.
    prev: Annotated[str, Meta(pattern=rf"^(?:{RECORDED_VALUE}|)\Z")] = ""


class Entry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=VERSION):
    """A staged commit in the form that this image writes. Entries of versions 2 to 5 lack some of its fields.

    Its attributes have the names of those of `StagedCommit`.
    """

    path: tuple[Name, Name] = msgspec.field(name="table")
    located: LocatedRowsFile | None = None
    sort_order_id: Int = 0
    published_column_id: Int | None = msgspec.field(default=None, name="published")
    offsets: str = ""
    updates: Updates | None = None


def strip_marks(value: str) -> str:
    """Return a fence value without the marks of a value that was closed or reset."""
    return value.rpartition(":")[2]


@dataclass(frozen=True)
class WriterId:
    """Who writes to a table: one task, one state key, one key range. At most one process at a time may act as it."""

    materialization: str
    state_key: str
    key_range: str  # begin-end

    def overlaps(self, key_range: str) -> bool:
        """Whether both key ranges have keys in common."""
        begin, end = key_range.split("-")
        own_begin, own_end = self.key_range.split("-")
        return begin <= own_end and own_begin <= end

    def is_of(self, owner: Owner | None) -> bool:
        """Whether a table with this owner was made, or last backfilled, for the writer's binding as it is now."""
        return owner is not None and (owner.materialization, owner.state_key) == (self.materialization, self.state_key)


def measure_share(key_range: str) -> float:
    """Return the part of all keys that a key range has. A shard may have the same part of what all shards share."""
    begin, end = (int(number, 16) for number in key_range.split("-"))
    return (end - begin + 1) / (KEY_END + 1)


TableId: TypeAlias = tuple[TableIdentifier, str]  # with its UUID: a later table of the same name has another UUID

# Identifies a chain: the pending commits of one writer to one table, each of which is based on the one before.
ChainId: TypeAlias = tuple[TableId, WriterId]

# By fence property, the values that prove that no other process has taken over since a session opened.
Known: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class StagedCommit:
    """The durable files of one transaction and one table, and the fence values between which they are committed."""

    writer: WriterId
    prev: str  # the fence value that the commit replaces; "" for none
    next: str
    path: TableIdentifier
    table_uuid: str
    spec_id: int
    schema_id: int
    files: tuple[DataFile, ...] | FileList
    checkpoint: str = ""  # a digest of the runtime's checkpoint, for people
    located: LocatedRowsFile | None = None  # the rows that the commit deletes; None: there were no Loads
    sort_order_id: int = 0  # of the data files; 0: they are in no sort order of the table
    published_column_id: int | None = None  # of the column with the publication times of the rows
    updates: Updates | None = None  # where its rows have their keys; None: delta updates, or not known
    offsets: str = ""  # how far the transaction has read its source: a JSON object of journals, for people
    is_recovered: bool = field(default=False, compare=False)  # read from state, not staged by this process
    known: Known = field(default_factory=dict, compare=False)  # when the session that staged it opened

    @property
    def chain_id(self) -> ChainId:
        """The chain that the commit belongs to: its table and its writer."""
        return self.table_id, self.writer

    @property
    def follows(self) -> str:
        """The `next` of the commit before: `prev` without its marks."""
        return strip_marks(self.prev)

    @property
    def locations(self) -> Sequence[str]:
        """The locations of the data files, or of the object that lists them, and of the located rows."""
        listed = [self.files.location] if isinstance(self.files, FileList) else [file.path for file in self.files]
        return [*listed, self.located.location] if self.located and self.located.location else listed

    @property
    def table_id(self) -> TableId:
        """The table by path and UUID: another table may get the same path."""
        return self.path, self.table_uuid

    @property
    def file_count(self) -> int:
        """The number of its data files."""
        return self.files.file_count if isinstance(self.files, FileList) else len(self.files)

    @property
    def rows(self) -> int:
        """The number of rows in its data files."""
        return self.files.rows if isinstance(self.files, FileList) else sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """The bytes of its data files."""
        return self.files.size if isinstance(self.files, FileList) else sum(file.size for file in self.files)


@dataclass(frozen=True)
class FinishedCommit:
    """The newest commit of one writer to one table that the state does not name as staged any more."""

    writer: WriterId
    table_uuid: str
    value: str  # the table's property had this fence value, or a later one


@dataclass(frozen=True)
class StagedTransaction:
    """The staged commits of one transaction: durable, but in no table yet."""

    commits: tuple[StagedCommit, ...] = ()

    @property
    def patch(self) -> Json | None:
        """The patch of `startedCommit`, which adds the commits to the state."""
        return encode_added(self.commits) if self.commits else None

    @property
    def size(self) -> int | None:
        """Bytes of the data files. None if nothing is staged; 0 if rows are only deleted."""
        return sum(commit.size for commit in self.commits) if self.commits else None


@dataclass(frozen=True)
class ReportedCommits:
    """The commits that tables have got since the last report."""

    commits: tuple[StagedCommit, ...]

    @property
    def patch(self) -> Json | None:
        """The patch of `acknowledged`, which removes the commits from the state."""
        return encode_removed(self.commits) if self.commits else None


def encode_added(staged: Iterable[StagedCommit]) -> dict[str, Any]:
    """Make the patch that adds these commits to the state."""
    return _patch((commit, _encode(commit)) for commit in staged)


def encode_removed(finished: Sequence[StagedCommit]) -> dict[str, Any]:
    """Make the patch that removes these commits from the state, and keeps the newest fence value of each chain."""
    values: dict[str, dict[str, dict[str, str]]] = {}
    for commit in finished:
        by_table = values.setdefault(commit.writer.state_key, {}).setdefault(commit.writer.key_range, {})
        # The ordinal number comes first in a value, so the texts have the order of the commits.
        by_table[commit.table_uuid] = max(commit.next, by_table.get(commit.table_uuid, ""))
    return _patch((commit, None) for commit in finished) | {"finished": values}


def _patch(entries: Iterable[tuple[StagedCommit, Json]]) -> dict[str, Any]:
    states: dict[str, dict[str, dict[str, Json]]] = {}
    for commit, entry in entries:
        ranges = states.setdefault(commit.writer.state_key, {})
        ranges.setdefault(commit.writer.key_range, {})[commit.next] = entry
    return {"bindingStates": states}


def _encode(commit: StagedCommit) -> Json:
    values: dict[str, Any] = {name: getattr(commit, name, None) for name in Entry.__struct_fields__}
    if isinstance(commit.files, FileList):
        values |= {"files": (), "file_list": commit.files}
    return msgspec.to_builtins(Entry(**values))
