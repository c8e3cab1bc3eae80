"""Every engine reads a table whose partitions and sort order have changed, before, during and after a backfill."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import Table

from fixtures.collection import Collection, Field
from fixtures.conversation import Row
from support.readers import duckdb_connection, local_catalog, polars_table
from support.runtime import Runtime
from support.spark_sql import MetadataFiles, spark_sql

pytestmark = pytest.mark.spark

Read = tuple[int, str]

ARRANGEMENTS: Final = (("day(happened)", "happened desc"), ("bucket(4, id), truncate(1, note)", ""), ("", "note"))
EVENTS: Final = Collection(
    "acmeCo/events",
    "events",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("happened", "/happened", ("string",), string={"format": "date-time"}),
        Field("note", "/note", ("string",)),
    ),
)
DAYS: Final = ("2024-02-29", "2024-03-01")
ON_THE_SECOND_DAY: Final = "happened >= '2024-03-01T00:00:00+00:00'"


def make_event(number: int, version: int) -> Any:
    day = DAYS[(number + version) % 2]
    return {"id": number, "happened": f"{day}T{number % 24:02}:00:00Z", "note": f"v{version} of {number}"}


def publish(runtime: Runtime, partition_by: str, sort_by: str) -> None:
    settings = {"partition_by": partition_by, "sort_by": sort_by, "delta_updates": False}
    runtime.change([replace(EVENTS, settings=settings)])
    runtime.apply()


def update(runtime: Runtime, events: list[Any]) -> None:
    with runtime.open() as session:
        session.load(*([event["id"]] for event in events))
        loaded = {document["id"] for _, document in session.flush()}
        session.store_rows(*(Row(0, event, exists=event["id"] in loaded) for event in events))
        session.start_commit()
        session.acknowledge()
        ended = session.finish()
        assert ended.status == 0, ended.log


def load_table(directory: Path) -> Table:
    return local_catalog(directory / "warehouse").load_table("shop.events")


def read(directory: Path, condition: str, spark: MetadataFiles) -> Iterator[tuple[str, list[Read]]]:
    """Yield each reader, and the rows that it finds with this filter."""
    table = load_table(directory)
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
    by_polars = polars_table(load_table(directory).metadata_location, {}, reader=None)
    assert sorted(by_polars["note"].to_pylist()) == sorted(event["note"] for event in documents.values())


def test_every_engine_reads_partitions_that_have_changed_and_a_backfill(
    tmp_path: Path, spark_reader_jars: Path
) -> None:
    runtime = Runtime(tmp_path, [EVENTS])
    documents: dict[int, Any] = {}
    with spark_sql(spark_reader_jars, {}, tmp_path) as running:
        spark = MetadataFiles(running, "scratch", tmp_path, None)
        for version, (partition_by, sort_by) in enumerate(ARRANGEMENTS):
            publish(runtime, partition_by, sort_by)
            events = [make_event(number, version) for number in range(version * 5, version * 5 + 20)]
            update(runtime, events)
            documents |= {event["id"]: event for event in events}
        check(tmp_path, documents, spark)
        before = load_table(tmp_path)
        runtime.backfill()
        runtime.apply()
        check(tmp_path, documents, spark)  # the rows of before, until the first commit
        again = {number: make_event(number, 9) for number in range(10)}
        update(runtime, [*again.values()])
        check(tmp_path, again, spark)
    after = load_table(tmp_path)
    assert (after.metadata.table_uuid, after.location()) == (before.metadata.table_uuid, before.location())
    snapshot = before.current_snapshot()
    assert snapshot
    of_before = after.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("note",)).to_arrow()
    assert sorted(of_before["note"].to_pylist()) == sorted(event["note"] for event in documents.values())
