"""Every engine reads a table whose partitions and sort order have changed, before, during and after a backfill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from support.arranged_events import ARRANGEMENTS, DAYS, arranged, load_events, make_event, store_events
from support.readers import duckdb_connection, polars_table
from support.runtime import Runtime
from support.spark_sql import MetadataFiles, spark_sql

pytestmark = pytest.mark.spark

Read = tuple[int, str]

ON_THE_SECOND_DAY: Final = "happened >= '2024-03-01T00:00:00+00:00'"


def publish(runtime: Runtime, partition_by: str, sort_by: str) -> None:
    runtime.change([arranged(partition_by, sort_by, delta_updates=False)])
    runtime.apply()


def read(directory: Path, condition: str, spark: MetadataFiles) -> Iterator[tuple[str, list[Read]]]:
    """Yield each reader, and the rows that it finds with this filter."""
    table = load_events(directory)
    location = table.metadata_location
    query = f"SELECT id, note FROM {{}} WHERE {condition}"
    found = table.scan(condition, selected_fields=("id", "note")).to_arrow().to_pylist()
    yield "PyIceberg", [(row["id"], row["note"]) for row in found]
    with duckdb_connection(directory / "extensions") as duckdb:
        yield "DuckDB", duckdb.execute(query.format(f"iceberg_scan('{location}')")).fetchall()
    with spark.table(location) as registered:
        [rows] = spark.spark.rows(query.format(registered))
    yield "Spark", [(row["id"], row["note"]) for row in rows]


def check(directory: Path, documents: dict[int, Any], spark: MetadataFiles) -> None:
    for condition, days in (("id >= 0", DAYS), (ON_THE_SECOND_DAY, DAYS[1:]), ("id = 7", DAYS)):
        expected = [
            (number, event["note"])
            for number, event in sorted(documents.items())
            if event["happened"].startswith(days) and (condition != "id = 7" or number == 7)
        ]
        for reader, rows in read(directory, condition, spark):
            assert sorted(rows) == expected, (reader, condition)
    by_polars = polars_table(load_events(directory).metadata_location, {}, reader=None)
    assert sorted(by_polars["note"].to_pylist()) == sorted(event["note"] for event in documents.values())


def test_every_engine_reads_partitions_that_have_changed_and_a_backfill(
    tmp_path: Path, spark_reader_jars: Path
) -> None:
    runtime = Runtime(tmp_path, [arranged(*ARRANGEMENTS[0], delta_updates=False)])
    documents: dict[int, Any] = {}
    with spark_sql(spark_reader_jars, {}, tmp_path) as running:
        spark = MetadataFiles(running, "scratch", tmp_path, None)
        for version, (partition_by, sort_by) in enumerate(ARRANGEMENTS):
            publish(runtime, partition_by, sort_by)
            events = [make_event(number, version) for number in range(version * 5, version * 5 + 20)]
            store_events(runtime, events, with_loads=True)
            documents |= {event["id"]: event for event in events}
        check(tmp_path, documents, spark)
        before = load_events(tmp_path)
        runtime.backfill()
        runtime.apply()
        check(tmp_path, documents, spark)  # the rows of before, until the first commit
        again = {number: make_event(number, 9) for number in range(10)}
        store_events(runtime, [*again.values()], with_loads=True)
        check(tmp_path, again, spark)
    after = load_events(tmp_path)
    assert (after.metadata.table_uuid, after.location()) == (before.metadata.table_uuid, before.location())
    snapshot = before.current_snapshot()
    assert snapshot
    of_before = after.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("note",)).to_arrow()
    assert sorted(of_before["note"].to_pylist()) == sorted(event["note"] for event in documents.values())
