"""Transactions that add ids to a table with one column, from their files to their commits."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence
from connector.model.state import ColumnStatistics, DataFile, StagedCommit, WriterId
from support.bindings import PATH
from support.tables.planted_faults import refuse

WHOLE = "00000000-ffffffff"
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
ARROW_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
REFUSED: Final = refuse(ServiceUnavailableError("503"))


def stage_ids(
    catalog: Catalog,
    ids: Sequence[int],
    prev: str | None = None,
    key_range: str = WHOLE,
    state_key: str = "orders.v1",
    waiting: Sequence[StagedCommit] = (),
) -> StagedCommit:
    """Write a data file as a task would, and name it as startCommit does; without a `prev` as the first of a session
    that opens now."""
    table = catalog.load_table(PATH)
    writer = WriterId("acme/orders", state_key, key_range)
    writer_fence = WriterFence.begin(table.properties, writer, waiting)
    path = Path(table.location().removeprefix("file://")) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}, schema=ARROW_SCHEMA), path)
    statistics = ColumnStatistics(1, 40, len(ids), 0, min(ids).to_bytes(8, "little"), max(ids).to_bytes(8, "little"))
    return StagedCommit(
        writer=writer,
        prev=writer_fence.prev if prev is None else prev,
        next=fence.new_value(),
        path=PATH,
        table_uuid=str(table.metadata.table_uuid),
        spec_id=0,
        schema_id=0,
        files=(DataFile(path.as_uri(), len(ids), path.stat().st_size, (4,), (statistics,)),),
        known=writer_fence.known,
    )


def commit_staged(catalog: Catalog, *staged: StagedCommit, is_recovery: bool = False) -> None:
    commit.commit_all_or_raise(catalog, [replace(commit, is_recovered=is_recovery) for commit in staged])


def foreign_append(catalog: Catalog, *values: int) -> None:
    catalog.load_table(PATH).append(pa.table({"id": list(values)}))
