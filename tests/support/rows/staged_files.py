"""Transactions that are staged as a session stages them: real files, under the names that prove whose they are."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence, file_prefix
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import DataFile, FileList, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import LIST_SUFFIX, write_list
from protocol.flow import WHOLE_RANGE, Json
from support.bindings import PATH
from support.rows.staged_rows import WRITER

_ID = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})])


def removed_from_state(staged: StagedCommit) -> Json:
    """The patch that removes one commit from the state, and keeps its fence value."""
    writer = staged.writer
    return {
        "bindingStates": {writer.state_key: {writer.key_range: {staged.next: None}}},
        "finished": {writer.state_key: {writer.key_range: {staged.table_uuid: staged.next}}},
    }


def finished_state(state_key: str, *tables: Table) -> Json:
    """The state of a binding whose tables have every commit of their only writer."""
    values = {}
    for table in tables:
        (value,) = (value for name, value in table.properties.items() if name.startswith(fence.PREFIX))
        values[str(table.metadata.table_uuid)] = value
    key_range = WHOLE_RANGE.key_range
    return {"bindingStates": {state_key: {key_range: {}}}, "finished": {state_key: {key_range: values}}}


def write_file(table: Table, name: str, *ids: int) -> str:
    """A data file of a table with the one column `id`; its location."""
    location = f"{table.location()}/data/{name}"
    with table.io.new_output(location).create(overwrite=True) as stream:
        pq.write_table(pa.table({"id": list(ids)}, schema=_ID), stream)
    return location


def leave_behind(table: Table, writer: WriterId, prev: str = fence.NONE) -> str:
    """A file of a transaction that was never staged; its location."""
    return write_file(table, _name(table, writer, prev), 666)


def stage(
    catalog: Catalog,
    path: TableIdentifier,
    writer: WriterId,
    *ids: int,
    prev: str | None = None,
    waiting: Sequence[StagedCommit] = (),
) -> StagedCommit:
    """Without a `prev` as the first transaction of a session that opens now, while others wait for the table."""
    table = catalog.load_table(path)
    writer_fence = WriterFence.begin(table.properties, writer, waiting)
    in_name = writer_fence.in_file_names if prev is None else prev
    prev = writer_fence.prev if prev is None else prev
    location = write_file(table, _name(table, writer, in_name), *ids)
    return StagedCommit(
        writer=writer,
        prev=prev,
        next=fence.new_value(prev),
        path=path,
        table_uuid=find_generation(table, writer.materialization).uuid,
        spec_id=0,
        schema_id=0,
        files=(DataFile(location, len(ids), len(table.io.new_input(location)), (4,), ()),),
        known=writer_fence.known,
    )


def stage_chain(catalog: Catalog, path: TableIdentifier, writer: WriterId) -> list[StagedCommit]:
    """Two transactions, with the ids 1, 2 and 3."""
    first = stage(catalog, path, writer, 1, 2)
    return [first, stage(catalog, path, writer, 3, prev=first.next)]


def land(
    catalog: Catalog, *ids: int, path: TableIdentifier = PATH, writer: WriterId = WRITER, prev: str | None = None
) -> StagedCommit:
    """A transaction from its files to its commit."""
    staged = stage(catalog, path, writer, *ids, prev=prev)
    commit_all_or_raise(catalog, [staged])
    return staged


def listed(table: Table, staged: StagedCommit) -> StagedCommit:
    """The same with its one file in a list beside it, as if there were too many for the state."""
    assert not isinstance(staged.files, FileList)
    [location] = staged.locations
    return replace(staged, files=write_list(table.io, f"{location}{LIST_SUFFIX}", staged.files))


@contextmanager
def removed(*locations: str) -> Iterator[None]:
    """Files on this disk are deleted, as by an engine that takes them for orphans, and in the end put back."""
    contents = {place: place.read_bytes() for place in map(place_of, locations)}
    for place in contents:
        place.unlink()
    yield
    for place, content in contents.items():
        place.write_bytes(content)


def place_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _name(table: Table, writer: WriterId, prev: str) -> str:
    generation = find_generation(table, writer.materialization)
    return f"{file_prefix(writer, generation.uuid, prev)}-{uuid.uuid4()}.parquet"
