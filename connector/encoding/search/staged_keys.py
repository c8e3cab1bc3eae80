"""The keys of staged rows, read from the data files that have the rows."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import PrimitiveType

from connector.encoding.lines.keys_tables import empty_keys_table, part_name
from connector.encoding.live_rows.source_rows import cast_values
from connector.encoding.parquet.file_columns import FileColumns, column_of, open_data_file
from connector.encoding.search.document_keys import document_key
from connector.model.binding import Updates
from connector.model.state import DataFile

# Returns keys as a keys table, for key columns of the types that the table has now, by field id.
ReadKeys: TypeAlias = Callable[[Mapping[int, PrimitiveType]], pa.Table]

_ROWS: Final = 1 << 16  # that are decoded at once


def read_staged_keys(
    io: FileIO, files: Sequence[DataFile], updates: Updates, column_types: Mapping[int, PrimitiveType]
) -> pa.Table:
    """Return the keys of all rows of these files as a keys table, for key columns of these types.

    A search needs the texts of keys only if their columns do not tell them apart, or a part is null. Others have none.
    """
    types = [column_types[part.column_id] for part in updates.parts]
    empty = empty_keys_table(updates.parts, types)
    batches = [batch for file in files for batch in _read(io, file, updates, empty.schema)]
    return pa.Table.from_batches(batches, empty.schema)


def _read(io: FileIO, file: DataFile, updates: Updates, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    ids = [part.column_id for part in updates.parts]
    if not updates.is_exact or _may_have_nulls(file, ids):
        ids.append(updates.document_id)
    with open_data_file(io, file.path, file.size) as reader:
        columns = FileColumns(reader)
        for batch in columns.read_batches(ids, range(columns.row_groups), _ROWS):
            values = [
                cast_values(column_of(batch, part.column_id), schema.field(part_name(part)), file.path)
                for part in updates.parts
            ]
            yield pa.record_batch([*values, _texts(batch, updates, values)], schema=schema)


def _may_have_nulls(file: DataFile, column_ids: Sequence[int]) -> bool:
    nulls = {column.field_id: column.nulls for column in file.columns}
    return any(nulls.get(number) != 0 for number in column_ids)


def _texts(batch: pa.RecordBatch, updates: Updates, values: Sequence[pa.Array]) -> pa.Array:
    has_null = reduce(pc.or_, (column.is_null() for column in values))
    if updates.is_exact and not has_null.true_count:
        return pa.nulls(batch.num_rows, pa.string())
    needed = has_null.to_pylist() if updates.is_exact else [True] * batch.num_rows
    documents = column_of(batch, updates.document_id).cast(pa.string()).to_pylist()
    texts = (
        json.dumps(document_key(document, updates.parts), default=str) if is_needed else None
        for document, is_needed in zip(documents, needed, strict=True)
    )
    return pa.array(texts, pa.string())
