"""Other engines' row-level deletes: what PyIceberg does not write, made by hand."""

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, StructType

from support.engines.snapshot_refs import set_ref

# The unpartitioned spec: an equality delete of it applies to every file of the table.
GLOBAL_SPEC = 0


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        """PyIceberg would write the field ids as longs, which Java does not read."""
        schema = super()._with_partition(format_version)
        *fields, data_file = schema.fields
        assert isinstance(data_file.field_type, StructType)
        columns = [
            column.model_copy(update={"field_type": ListType(136, IntegerType(), element_required=True)})
            if column.name == "equality_ids"
            else column
            for column in data_file.field_type.fields
        ]
        return Schema(*fields, data_file.model_copy(update={"field_type": StructType(*columns)}))


def delete_equal(table: Table, value: int, name: str = "id") -> None:
    """Commit an equality delete, as Flink does: it hides the rows of all files with a lower sequence number."""
    column_id = table.schema().find_field(name).field_id
    column = pa.field(name, pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(column_id)})
    rows = pa.table({name: [value]}, schema=pa.schema([column]))
    _commit(table, _write(table, rows, equality_ids=[column_id]))


def delete_position(table: Table, file: str, position: int, file_format: FileFormat = FileFormat.PARQUET) -> None:
    """Commit a position delete, as Spark does: it hides a row of a file with the same sequence number or a lower
    one. It is of the file's partition."""
    columns = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    rows = pa.table({"file_path": [file], "pos": [position]}, schema=pa.schema(columns))
    _commit(table, _write(table, rows, of=_find(table, file), file_format=file_format))


def list_delete_file(table: Table, path: str) -> None:
    """Commit a position delete file, which need not exist."""
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = GLOBAL_SPEC
    _commit(table, file)


def _find(table: Table, path: str) -> DataFile | None:
    snapshot = table.current_snapshot()
    assert snapshot
    entries = [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]
    return next((entry.data_file for entry in entries if entry.data_file.file_path == path), None)


def _write(
    table: Table,
    rows: pa.Table,
    equality_ids: list[int] | None = None,
    of: DataFile | None = None,
    file_format: FileFormat = FileFormat.PARQUET,
) -> DataFile:
    """Write a delete file: of equality deletes if there are `equality_ids`, else of position deletes. It gets the
    partition of the data file `of`."""
    location = f"{table.location()}/data/{uuid.uuid4()}-deletes.{file_format.value.lower()}"
    write = {FileFormat.PARQUET: pq.write_table, FileFormat.ORC: orc.write_table}[file_format]
    with table.io.new_output(location).create() as stream:
        write(rows, stream)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if equality_ids else DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=file_format,
        partition=of.partition if of else Record(),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(location)),
        equality_ids=equality_ids,
    )
    file.spec_id = of.spec_id if of else GLOBAL_SPEC
    return file


def _commit(table: Table, file: DataFile) -> None:
    """Commit a delete file."""
    metadata, snapshot_id = table.metadata, uuid.uuid4().int >> 65
    parent = table.current_snapshot()
    assert parent is not None
    assert not isinstance(metadata, TableMetadataV1)
    manifest_list = f"{table.location()}/metadata/snap-{uuid.uuid4()}.avro"
    sequence_number = metadata.last_sequence_number + 1
    with write_manifest_list(
        2, table.io.new_output(manifest_list), snapshot_id, parent.snapshot_id, sequence_number, "deflate"
    ) as manifests:
        manifests.add_manifests([_manifest(table, snapshot_id, file), *parent.manifests(table.io)])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=manifest_list,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    asserted = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=parent.snapshot_id)
    updates = (AddSnapshotUpdate(snapshot=snapshot), set_ref(MAIN_BRANCH, snapshot_id))
    table.catalog.commit_table(table, (asserted,), updates)


def _manifest(table: Table, snapshot_id: int, file: DataFile) -> ManifestFile:
    output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro")
    spec = table.specs()[file.spec_id or GLOBAL_SPEC]
    with _DeleteManifestWriter(spec, table.schema(), output, snapshot_id, "deflate") as manifest:
        manifest.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=None,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
        )
    return manifest.to_manifest_file()
