"""Transactions whose rows have every column that their table has when they are staged.

Their files are of the table's current partition spec and sort order, but rows are not sorted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, PrimitiveType

from connector.encoding.parquet.data_files import DataFileWriter, NewFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.values.column_types import arrow_type_of
from connector.iceberg.fences.fence import WriterFence, file_prefix, new_value
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.model.binding import Column
from connector.model.state import DataFile, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION, PATH

WRITER = WriterId(MATERIALIZATION, "shop%2Forders.v0", WHOLE_RANGE.key_range)


def staged(
    catalog: Catalog,
    *rows: Any,
    after: StagedCommit | None = None,
    writer: WriterId = WRITER,
    path: TableIdentifier = PATH,
) -> StagedCommit:
    """A transaction, staged as a session does it on the table as it is."""
    loaded = catalog.load_table(path)
    generation = find_generation(loaded, writer.materialization)
    table = restrict_to_generation(loaded, generation)
    writer_fence = WriterFence.begin(table.properties, writer, [])
    prev = after.next if after else writer_fence.prev
    new_files = _make_new_files(table, file_prefix(writer, generation.uuid, prev))
    return StagedCommit(
        writer=writer,
        prev=prev,
        next=new_value(prev),
        path=path,
        table_uuid=generation.uuid,
        spec_id=table.spec().spec_id,
        schema_id=table.metadata.current_schema_id,
        files=tuple(
            msgspec.structs.replace(file, partition=partition)
            for partition, of_partition in divide(table, rows)
            for file in _write(new_files, of_partition)
        ),
        sort_order_id=table.sort_order().order_id,
        known=writer_fence.known,
    )


def chain_of(first: StagedCommit, length: int) -> list[StagedCommit]:
    """So many transactions, each with the files of the first one: enough for a table that refuses them."""
    chain = [first]
    while len(chain) < length:
        chain.append(replace(first, prev=chain[-1].next, next=new_value(chain[-1].next)))
    return chain


def _make_new_files(table: Table, prefix: str) -> NewFiles:
    columns = [
        Column(each.name, each.name, each.field_id, each.field_type, each.required)
        for each in table.schema().fields
        if isinstance(each.field_type, PrimitiveType)
    ]
    schema = pa.schema(
        pa.field(each.name, arrow_type_of(each.type), not each.required, {"PARQUET:field_id": str(each.id)})
        for each in columns
    )
    destination = Destination.of_table(table, prefix)
    return NewFiles(table.io, destination.new_location, columns, schema, destination.options)


def _write(files: NewFiles, rows: Sequence[Any]) -> list[DataFile]:
    writer = DataFileWriter(files)
    for batch in pa.Table.from_pylist(list(rows), schema=files.schema).to_batches():
        writer.write(batch)
    return writer.finish()


def divide(table: Table, rows: Sequence[Any]) -> list[tuple[tuple[bytes | None, ...], list[Any]]]:
    """The rows of each partition of the table's current spec, by the partition's values as a data file has them.

    The transforms are those of PyIceberg in Python, not those that the connector uses.
    """
    spec, schema = table.spec(), table.schema()
    if not spec.fields:
        return [((), list(rows))] if rows else []
    types = [field.field_type for field in spec.partition_type(schema).fields]
    divided: dict[tuple[bytes | None, ...], list[Any]] = {}
    for row in rows:
        partition = tuple(
            _partition_value(field, type_, row, schema) for field, type_ in zip(spec.fields, types, strict=True)
        )
        divided.setdefault(partition, []).append(row)
    return [*divided.items()]


def _partition_value(field: PartitionField, type_: IcebergType, row: Any, schema: Schema) -> bytes | None:
    source = schema.find_field(field.source_id)
    value = partition_record_value(field, row.get(source.name), schema)
    transformed = field.transform.transform(source.field_type)(value)
    assert isinstance(type_, PrimitiveType)
    return None if transformed is None else to_bytes(type_, transformed)
