"""Transactions whose rows have every column that their table has when they are staged."""

from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.types import PrimitiveType

from connector.encoding.column_types import arrow_type_of
from connector.encoding.data_files import DataFileWriter, FileOptions
from connector.iceberg.commits.fence import Tenure, file_prefix, new_value
from connector.iceberg.metadata.table_updates import find_generation, show_generation
from connector.model.binding import Column
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.altered_tables import PATH
from support.bindings import MATERIALIZATION

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
    table = show_generation(loaded, generation)
    tenure = Tenure.begin(table.properties, writer, [])
    prev = after.next if after else tenure.prev
    prefix = file_prefix(writer, generation.uuid, prev)
    columns = [
        Column(each.name, each.name, each.field_id, each.field_type, each.required)
        for each in table.schema().fields
        if isinstance(each.field_type, PrimitiveType)
    ]
    schema = pa.schema(
        pa.field(each.name, arrow_type_of(each.type), not each.required, {"PARQUET:field_id": str(each.id)})
        for each in columns
    )
    file = DataFileWriter(
        table.io,
        lambda: f"{table.location()}/data/{prefix}-{uuid4()}.parquet",
        columns,
        schema,
        FileOptions.of_table({}),
    )
    for batch in pa.Table.from_pylist(list(rows), schema=schema).to_batches():
        file.write(batch)
    return StagedCommit(
        writer=writer,
        prev=prev,
        next=new_value(prev),
        path=path,
        table_uuid=generation.uuid,
        spec_id=0,
        schema_id=table.metadata.current_schema_id,
        files=tuple(file.finish()),
        known=tenure.known,
    )
