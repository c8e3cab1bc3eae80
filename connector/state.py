"""What `startedCommit` persists: everything that a successor needs to finish a transaction, on any machine.

Connector state is `{"bindingStates": {state key: {key range: {next fence value: entry}}}}`; an entry is a StagedCommit
without what its place in the state says already. Patches (RFC 7396) add an entry, and delete it with null; they never
replace an object that another shard may be writing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from connector.errors import UserError
from connector.predecessor import own_ranges
from protocol.flow import Json


class ColumnStatistics(msgspec.Struct, frozen=True, array_like=True):
    """Statistics of one column of a data file, as Iceberg keeps them."""

    field_id: int
    size: int  # compressed bytes
    values: int  # rows, nulls included
    nulls: int | None
    lower: bytes | None  # Iceberg's single-value serialization
    upper: bytes | None


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file that a task has written: its manifest entry in compact form."""

    path: str
    rows: int
    size: int  # bytes
    splits: tuple[int, ...]  # where its row groups begin
    columns: tuple[ColumnStatistics, ...]


class FileList(msgspec.Struct, frozen=True, array_like=True):
    """An object that lists data files; see `file_lists`."""

    location: str
    files: int
    rows: int
    size: int  # bytes of the data files


class _Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    path: tuple[str, str]
    table_uuid: str
    spec_id: int
    schema_id: int
    files: tuple[DataFile, ...] = ()
    file_list: FileList | None = None  # instead of files
    checkpoint: str = ""
    prev: str = ""  # absent: fence.NONE. A merge patch cannot carry a null here.


class _State(msgspec.Struct, frozen=True, rename="camel"):
    binding_states: dict[str, dict[str, Json] | None] | None = None


_Ranges: TypeAlias = dict[str, dict[str, _Entry] | None]


@dataclass(frozen=True)
class Lineage:
    """A line of transactions into one table with one legitimate writer at a time."""

    materialization: str
    state_key: str
    key_range: str  # begin-end

    def overlaps(self, key_range: str) -> bool:
        begin, end = key_range.split("-")
        own_begin, own_end = self.key_range.split("-")
        return begin <= own_end and own_begin <= end


TableId: TypeAlias = tuple[tuple[str, str], str]  # path and uuid: a later table of the same name has another uuid

# Identifies the staged commits of one lineage for one table, each of which was staged on the one before.
Chain: TypeAlias = tuple[TableId, Lineage]

# By fence property, the values that prove that nobody has taken over since a session opened.
Known: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class StagedCommit:
    """One transaction's share of one table: durable files, waiting for their commit."""

    lineage: Lineage
    prev: str  # the fence value that the files were staged on; "" for none
    next: str
    path: tuple[str, str]
    table_uuid: str
    spec_id: int
    schema_id: int
    files: tuple[DataFile, ...] | FileList
    checkpoint: str = ""  # a digest of the runtime's checkpoint, for people
    is_recovered: bool = field(default=False, compare=False)  # read from state, not staged by this process
    known: Known = field(default_factory=dict, compare=False)  # when the session that staged it opened

    @property
    def chain_id(self) -> Chain:
        return self.table_id, self.lineage

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
        return added(self.commits) if self.commits else None


@dataclass(frozen=True)
class LandedTransaction:
    """What the tables have taken since it was last reported."""

    commits: tuple[StagedCommit, ...]

    @property
    def patch(self) -> Json | None:
        """What `acknowledged` removes from the state."""
        return removed(self.commits) if self.commits else None

    @property
    def size(self) -> int:
        """Bytes of this session's data files."""
        return sum(commit.size for commit in self.commits if not commit.is_recovered)


def added(staged: Iterable[StagedCommit]) -> dict[str, Any]:
    """The patch that adds these entries."""
    return _patch((commit, _encoded(commit)) for commit in staged)


def removed(landed: Iterable[StagedCommit]) -> dict[str, Any]:
    """The patch that deletes these entries."""
    return _patch((commit, None) for commit in landed)


def entries(materialization: str, state: Json) -> Iterator[StagedCommit]:
    """Every staged commit that the state names, in no particular order."""
    try:
        for state_key, ranges in (msgspec.convert(state or {}, _State).binding_states or {}).items():
            for key_range, by_next in msgspec.convert(own_ranges(ranges or {}), _Ranges).items():
                lineage = Lineage(materialization, state_key, key_range)
                for fence, entry in (by_next or {}).items():
                    yield _staged(lineage, fence, entry)
    except msgspec.ValidationError as error:
        raise UserError(
            f"the task's state is not what this connector keeps ({error}): it is another connector's, or was changed "
            "by hand. Restore it as it was."
        ) from error


def _staged(lineage: Lineage, fence: str, entry: _Entry) -> StagedCommit:
    return StagedCommit(
        lineage=lineage,
        prev=entry.prev,
        next=fence,
        path=entry.path,
        table_uuid=entry.table_uuid,
        spec_id=entry.spec_id,
        schema_id=entry.schema_id,
        files=entry.file_list or entry.files,
        checkpoint=entry.checkpoint,
        is_recovered=True,
    )


def _patch(entries: Iterable[tuple[StagedCommit, Json]]) -> dict[str, Any]:
    states: dict[str, dict[str, dict[str, Json]]] = {}
    for commit, entry in entries:
        ranges = states.setdefault(commit.lineage.state_key, {})
        ranges.setdefault(commit.lineage.key_range, {})[commit.next] = entry
    return {"bindingStates": states}


def _encoded(commit: StagedCommit) -> Json:
    return msgspec.to_builtins(
        _Entry(
            path=commit.path,
            table_uuid=commit.table_uuid,
            spec_id=commit.spec_id,
            schema_id=commit.schema_id,
            files=() if isinstance(commit.files, FileList) else commit.files,
            file_list=commit.files if isinstance(commit.files, FileList) else None,
            checkpoint=commit.checkpoint,
            prev=commit.prev,
        )
    )
