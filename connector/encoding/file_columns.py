"""The columns of Parquet files by Iceberg's field ids. Names are only for people: a column may have been renamed."""

from typing import Final

import pyarrow as pa

from connector.encoding.column_types import FIELD_ID
from connector.host.errors import UserError

NO_ID: Final = -1


def column_id(field: pa.Field) -> int:
    """Return a column's field id; NO_ID if the file does not say it."""
    return int((field.metadata or {}).get(FIELD_ID, NO_ID))


def find_columns(schema: pa.Schema, path: str) -> dict[int, int]:
    """Return the places of a file's columns, by their field ids. Raises UserError if a column has none."""
    ids = [column_id(field) for field in schema]
    if NO_ID in ids:
        raise UserError(
            f"{path} has columns without Iceberg's field ids, so the connector cannot tell which column is which. Have "
            "the table's files rewritten first (in Spark: CALL system.rewrite_data_files)."
        )
    return {number: place for place, number in enumerate(ids)}
