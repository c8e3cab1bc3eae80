"""Date-times with nanoseconds, from documents to the engines that read them."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import TimestamptzNanoType

from connector.iceberg.metadata.table_updates import find_next_row_id
from fixtures.collection import Field
from fixtures.conversation import CONFIG
from support.engines.readers import polars_table, readers_catalog
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

AT = Field("at", "/at", ("string",), string={"format": "date-time"})
DAY = 86_400_000_000_000
SETTINGS = {"delta_updates": True, "partition_by": "day(at)", "sort_by": "at"}
EVENTS = replace(LEDGER, fields=(*LEDGER.fields, AT), settings=SETTINGS)
TIMES = {
    1: ("2024-01-02T03:04:05.123456789Z", 1704164645123456789),
    2: ("1969-12-31T23:59:59.9999999999Z", -1),  # the tenth digit is cut off
    3: ("2024-01-02T05:04:05.1+02:00", 1704164645100000000),
    4: ("1000-01-01T00:00:00.123456789Z", -9223372036854775000),  # clamped
    5: ("9999-12-31T23:59:59.999999999Z", 9223372036854774000),  # clamped
    6: (None, None),
    7: ("2024-01-02T03:04:05.12345678Z", 1704164645123456780),
}


def test_nine_digits_are_kept_and_read_by_pyiceberg_and_polars(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, [EVENTS], {**CONFIG, "advanced": {"nanosecond_timestamps": True}})
    with runtime.open(publish=True) as session:
        session.transaction(*({"id": number, "at": text} for number, (text, _) in TIMES.items()))
        assert session.finish().status == 0

    table = readers_catalog(tmp_path / "warehouse").load_table(f"shop.{EVENTS.table}")
    assert (table.metadata.format_version, find_next_row_id(table)) == (3, len(TIMES))
    at = table.schema().find_field("at")
    assert at.field_type == TimestamptzNanoType()
    expected = {number: nanoseconds for number, (_, nanoseconds) in TIMES.items()}
    for rows in (table.scan().to_arrow(), polars_table(table.metadata_location, {})):
        assert dict(zip(rows["id"].to_pylist(), rows["at"].cast(pa.int64()).to_pylist(), strict=True)) == expected
    for task in table.scan().plan_files():
        values = pq.read_table(task.file.file_path.removeprefix("file://"))["at"].cast(pa.int64()).drop_null()
        found = sorted(values.to_pylist())
        assert {each // DAY for each in found} == {task.file.partition[0]} - {None}
        bounds = [of_file.get(at.field_id) for of_file in (task.file.lower_bounds, task.file.upper_bounds)]
        assert bounds == (
            [to_bytes(TimestamptzNanoType(), each) for each in (found[0], found[-1])] if found else [None] * 2
        )
