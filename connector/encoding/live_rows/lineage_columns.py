"""The columns of row lineage: rows that are written to another file keep their ids, and the commits that changed them.

In a file of new rows these columns are missing, and readers take the values from the table's metadata. The metadata
knows only files, so a file of older rows needs the columns. Where a value is null, readers take that of the metadata.

In tables of format version 2, rows have no ids, and other engines ignore the number of the last change. Loads need it:
a key may have several rows, and they return the newest one.
"""

from collections.abc import Container
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType

from connector.encoding.live_rows.source_rows import RowLineage
from connector.encoding.live_rows.target_columns import TargetColumn, arrow_field
from connector.encoding.values.arrays import Positions
from connector.encoding.values.column_types import column_id

# Iceberg reserves these ids. The columns are in no schema of a table.
ROW_ID: Final = 2147483540
SEQUENCE_NUMBER: Final = 2147483539  # of the last change

LINEAGE_COLUMNS: Final = tuple(
    TargetColumn(number, name, LongType(), required=False, source_id=number, source_type=LongType())
    for number, name in ((ROW_ID, "_row_id"), (SEQUENCE_NUMBER, "_last_updated_sequence_number"))
)
NO_ROW_ID: Final = -1  # where arrays of ids have no nulls
ROW_ID_FIELD: Final = arrow_field(LINEAGE_COLUMNS[0], pa.int64())


def lineage_columns(lineage: RowLineage | None, source: Container[int] = ()) -> tuple[TargetColumn, ...]:
    """Return the columns of row lineage that a file with rows of a source gets. `source` has the field ids of the
    source's columns.

    A file that waits for its commit has no lineage yet, but the ids of updated rows.
    """
    has_ids = lineage is not None and lineage.first_row_id is not None
    return tuple(
        column
        for column in LINEAGE_COLUMNS
        if column.id in source or (has_ids if column.id == ROW_ID else lineage is not None)
    )


def fill_lineage(
    rows: pa.RecordBatch | pa.Table, lineage: RowLineage | None, positions: Positions
) -> pa.RecordBatch | pa.Table:
    """Return rows of a source with the ids and the sequence numbers that they inherit.

    `positions` are those of the rows in the source.
    """
    if lineage is None:
        return rows
    for index, field in enumerate(rows.schema):
        values = rows.column(index)
        if values.null_count and (inherited := _find_inherited(column_id(field), lineage, positions)) is not None:
            rows = rows.set_column(index, field, pc.coalesce(values, pa.array(inherited)))
    return rows


def _find_inherited(number: int | None, lineage: RowLineage, positions: Positions) -> Positions | None:
    """Return the values of a column at these positions of a source that does not say them itself."""
    if number == SEQUENCE_NUMBER:
        return np.full(len(positions), lineage.sequence_number)
    if number == ROW_ID and lineage.first_row_id is not None:
        return positions + lineage.first_row_id
    return None
