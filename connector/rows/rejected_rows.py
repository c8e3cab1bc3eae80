"""Rows that go to a table of their own, because a value of theirs fits its column in no way."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa


class RejectedRow(NamedTuple):
    """What is kept of one, in the order of the columns: see `rejected_table`."""

    reason: str
    field: str
    key: str  # JSON
    document: str  # JSON


def batch_of(rows: Sequence[RejectedRow], at: datetime, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as a table of rejected rows has them; there is at least one."""
    columns = [*zip(*rows, strict=True), [at] * len(rows)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
