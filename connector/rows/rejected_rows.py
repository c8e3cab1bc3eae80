"""Rows that go to the table of rejected rows, because one of their values cannot be held by its column."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa


class RejectedRow(NamedTuple):
    """What is kept of a rejected row, in the order of `rejected_table.COLUMNS`."""

    reason: str
    field: str
    key: str  # JSON
    document: str  # JSON


def batch_of(rows: Sequence[RejectedRow], at: datetime, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as a table of rejected rows has them; there is at least one."""
    columns = [*zip(*rows, strict=True), [at] * len(rows)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
