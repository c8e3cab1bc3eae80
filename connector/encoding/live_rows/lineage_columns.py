"""The columns of row lineage: rows that are written to another file keep their ids, and the commits that changed them.

In a file of new rows these columns are missing, and readers take the values from the table's metadata. The metadata
knows only files, so a file of older rows needs the columns. Where a value is null, readers take that of the metadata.
"""

from collections.abc import Container
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType

from connector.encoding.live_rows.position_deletes import Positions
from connector.encoding.live_rows.source_rows import RowLineage, TargetColumn, arrow_field
from connector.encoding.values.column_types import column_id

# Iceberg reserves these ids. The columns are in no schema of a table.
ROW_ID: Final = 2147483540
_SEQUENCE_NUMBER: Final = 2147483539  # of the last change

LINEAGE_COLUMNS: Final = tuple(
    TargetColumn(number, name, LongType(), required=False, source_id=number, source_type=LongType())
    for number, name in ((ROW_ID, "_row_id"), (_SEQUENCE_NUMBER, "_last_updated_sequence_number"))
)
NO_ROW_ID: Final = -1  # where arrays of ids have no nulls
ROW_ID_FIELD: Final = arrow_field(LINEAGE_COLUMNS[0], pa.int64())


def lineage_columns(lineage: RowLineage | None, source: Container[int] = ()) -> tuple[TargetColumn, ...]:
    """Return the columns of row lineage that a file with rows of a source gets. `source` has the field ids of the
    source's columns.

    A file that waits for its commit has no lineage yet, but the ids of updated rows.
    """
    return LINEAGE_COLUMNS if lineage else tuple(column for column in LINEAGE_COLUMNS if column.id in source)


def fill_lineage(
    rows: pa.RecordBatch | pa.Table, lineage: RowLineage | None, positions: Positions
) -> pa.RecordBatch | pa.Table:
    """Return rows of a source with the ids and the sequence numbers that they inherit.

    `positions` are those of the rows in the source.
    """
    if lineage is None:
        return rows
    inherited = {
        ROW_ID: lambda: pa.array(lineage.first_row_id + positions),
        _SEQUENCE_NUMBER: lambda: pa.array(np.full(len(positions), lineage.sequence_number)),
    }
    for place, field in enumerate(rows.schema):
        values = rows.column(place)
        if (find := inherited.get(column_id(field))) and values.null_count:
            rows = rows.set_column(place, field, pc.coalesce(values, find()))
    return rows
