"""What `startedCommit` persists: everything that a successor needs to finish a transaction, on any machine.

Connector state is `{"bindingStates": {state key: {key range: {next fence value: entry}}}}`; an entry is a StagedCommit
without what its place in the state says already. Patches (RFC 7396) add an entry, and delete it with null; they never
replace an object that another shard may be writing. `state_reader` reads it back, and checks all of it.

Every entry has its version, because shards of different images may write side by side. An image refuses a version that
it does not know. Change VERSION with every change of an entry's form, and keep reading the older forms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json

VERSION: Final = 2

FENCE_VALUE: Final = "[0-9a-f]{32}"
# A value, one that was closed, and one that was reset, if only from none. `iceberg/commits/fence` makes them.
RECORDED_VALUE: Final = f"(?:closed:)?{FENCE_VALUE}|closed:[0-9a-f]{{8}}:(?:{FENCE_VALUE})?"
KEY_RANGE: Final = "[0-9a-f]{8}-[0-9a-f]{8}"
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_Name: TypeAlias = Annotated[str, Meta(min_length=1)]
_Int: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # Iceberg's int
_Long: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # Iceberg's long


class ColumnStatistics(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Statistics of one column of a data file, as Iceberg keeps them."""

    field_id: _Int
    size: _Long  # compressed bytes
    values: _Long  # rows, nulls included
    nulls: _Long | None
    lower: bytes | None  # Iceberg's single-value serialization
    upper: bytes | None


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file that a task has written: its manifest entry in compact form."""

    path: _Name
    rows: _Long
    size: _Long  # bytes
    splits: tuple[_Long, ...]  # where its row groups begin
    columns: tuple[ColumnStatistics, ...]


class FileList(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object that lists data files; see `file_lists`."""

    location: _Name
    files: _Long
    rows: _Long
    size: _Long  # bytes of the data files


class _EveryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    table_uuid: Annotated[str, Meta(pattern=rf"^(?:{_UUID})\Z")]
    spec_id: _Int
    schema_id: _Int
    files: tuple[DataFile, ...] = ()
    file_list: FileList | None = None  # instead of files
    checkpoint: str = ""
    # Absent: fence.NONE. A merge patch cannot carry a null here.
    prev: Annotated[str, Meta(pattern=rf"^(?:{RECORDED_VALUE}|)\Z")] = ""


class FirstEntry(_EveryEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A staged commit as images wrote it before entries had a version."""

    path: tuple[_Name, _Name]


class Entry(_EveryEntry, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=VERSION):
    """A staged commit as this image writes it.

    Version 1 named the table `path`. An image that reads no versions misses that name, and refuses the entry: it would
    otherwise apply the part that it knows and then delete the entry.
    """

    table: tuple[_Name, _Name]

    @classmethod
    def of_version_1(cls, entry: FirstEntry) -> "Entry":
        return cls(
            table=entry.path,
            table_uuid=entry.table_uuid,
            spec_id=entry.spec_id,
            schema_id=entry.schema_id,
            files=entry.files,
            file_list=entry.file_list,
            checkpoint=entry.checkpoint,
            prev=entry.prev,
        )


@dataclass(frozen=True)
class WriterId:
    """Who writes to a table: a task, for one state key and one range of keys. One process at a time may act as it."""

    materialization: str
    state_key: str
    key_range: str  # begin-end

    def overlaps(self, key_range: str) -> bool:
        begin, end = key_range.split("-")
        own_begin, own_end = self.key_range.split("-")
        return begin <= own_end and own_begin <= end


TableId: TypeAlias = tuple[TableIdentifier, str]  # path and uuid: a later table of the same name has another uuid

# Identifies the staged commits of one writer for one table, each of which was staged on the one before.
ChainId: TypeAlias = tuple[TableId, WriterId]

# By fence property, the values that prove that nobody has taken over since a session opened.
Known: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class StagedCommit:
    """One transaction's share of one table: durable files, waiting for their commit."""

    writer: WriterId
    prev: str  # the fence value that the files were staged on; "" for none
    next: str
    path: TableIdentifier
    table_uuid: str
    spec_id: int
    schema_id: int
    files: tuple[DataFile, ...] | FileList
    checkpoint: str = ""  # a digest of the runtime's checkpoint, for people
    is_recovered: bool = field(default=False, compare=False)  # read from state, not staged by this process
    known: Known = field(default_factory=dict, compare=False)  # when the session that staged it opened

    @property
    def chain_id(self) -> ChainId:
        return self.table_id, self.writer

    @property
    def prev_value(self) -> str:
        """`prev` without the mark of a value that was closed: the `next` of the commit before."""
        return self.prev.rpartition(":")[2]

    @property
    def locations(self) -> Sequence[str]:
        """Of the files that the state names: the data files, or the object that lists them."""
        return (self.files.location,) if isinstance(self.files, FileList) else [file.path for file in self.files]

    @property
    def table_id(self) -> TableId:
        return self.path, self.table_uuid

    @property
    def file_count(self) -> int:
        return self.files.files if isinstance(self.files, FileList) else len(self.files)

    @property
    def rows(self) -> int:
        return self.files.rows if isinstance(self.files, FileList) else sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return self.files.size if isinstance(self.files, FileList) else sum(file.size for file in self.files)


@dataclass(frozen=True)
class StagedTransaction:
    """Every table's share of a transaction: durable, but in no table yet."""

    commits: tuple[StagedCommit, ...] = ()

    @property
    def patch(self) -> Json | None:
        """What `startedCommit` adds to the state."""
        return encode_added(self.commits) if self.commits else None


@dataclass(frozen=True)
class LandedTransaction:
    """What the tables have taken since it was last reported."""

    commits: tuple[StagedCommit, ...]

    @property
    def patch(self) -> Json | None:
        """What `acknowledged` removes from the state."""
        return encode_removed(self.commits) if self.commits else None

    @property
    def size(self) -> int:
        """Bytes of this session's data files."""
        return sum(commit.size for commit in self.commits if not commit.is_recovered)


def encode_added(staged: Iterable[StagedCommit]) -> dict[str, Any]:
    """The patch that adds these entries."""
    return _patch((commit, _encode(commit)) for commit in staged)


def encode_removed(landed: Iterable[StagedCommit]) -> dict[str, Any]:
    """The patch that deletes these entries."""
    return _patch((commit, None) for commit in landed)


def _patch(entries: Iterable[tuple[StagedCommit, Json]]) -> dict[str, Any]:
    states: dict[str, dict[str, dict[str, Json]]] = {}
    for commit, entry in entries:
        ranges = states.setdefault(commit.writer.state_key, {})
        ranges.setdefault(commit.writer.key_range, {})[commit.next] = entry
    return {"bindingStates": states}


def _encode(commit: StagedCommit) -> Json:
    return msgspec.to_builtins(
        Entry(
            table=commit.path,
            table_uuid=commit.table_uuid,
            spec_id=commit.spec_id,
            schema_id=commit.schema_id,
            files=() if isinstance(commit.files, FileList) else commit.files,
            file_list=commit.files if isinstance(commit.files, FileList) else None,
            checkpoint=commit.checkpoint,
            prev=commit.prev,
        )
    )
