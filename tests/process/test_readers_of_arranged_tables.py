"""Every engine reads a table whose partitions and sort order have changed, whose rows are replaced by a backfill, and
whose files are compacted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from connector.model.table_identifier import TableIdentifier
from fixtures.collection import Collection
from support.engines.readers import duckdb_connection, polars_table, readers_catalog
from support.engines.spark_sql import MetadataFiles
from support.rows.arranged_events import ARRANGEMENTS, DAYS, arranged, load_events, make_event, store_events, transact
from support.sessions.runtime import Runtime
from support.tables.compacting import EAGER, compact

pytestmark = pytest.mark.spark

Read = tuple[int, str]

ON_THE_SECOND_DAY: Final = "happened >= '2024-03-01T00:00:00+00:00'"


def read(directory: Path, condition: str, spark_files: MetadataFiles) -> Iterator[tuple[str, list[Read]]]:
    """Yield each reader, and the rows that it finds with this filter."""
    table = load_events(directory)
    location = table.metadata_location
    query = f"SELECT id, note FROM {{}} WHERE {condition}"
    found = table.scan(condition, selected_fields=("id", "note")).to_arrow().to_pylist()
    yield "PyIceberg", [(row["id"], row["note"]) for row in found]
    with duckdb_connection(directory / "extensions") as duckdb:
        yield "DuckDB", duckdb.execute(query.format(f"iceberg_scan('{location}')")).fetchall()
    with spark_files.table(location) as registered:
        [rows] = spark_files.spark.rows(query.format(registered))
    yield "Spark", [(row["id"], row["note"]) for row in rows]


def check(directory: Path, documents: dict[int, Any], spark_files: MetadataFiles) -> None:
    for condition, days in (("id >= 0", DAYS), (ON_THE_SECOND_DAY, DAYS[1:]), ("id = 7", DAYS)):
        expected = [
            (number, event["note"])
            for number, event in sorted(documents.items())
            if event["happened"].startswith(days) and (condition != "id = 7" or number == 7)
        ]
        for reader, rows in read(directory, condition, spark_files):
            assert sorted(rows) == expected, (reader, condition)
    by_polars = polars_table(load_events(directory).metadata_location, {}, reader=None)
    assert sorted(by_polars["note"].to_pylist()) == sorted(event["note"] for event in documents.values())


def test_every_engine_reads_partitions_that_have_changed_and_a_backfill(
    tmp_path: Path, spark_files: MetadataFiles
) -> None:
    runtime = Runtime(tmp_path, [arranged(*ARRANGEMENTS[0], delta_updates=False)])
    documents: dict[int, Any] = {}
    for version, (partition_by, sort_by) in enumerate(ARRANGEMENTS):
        runtime.change([arranged(partition_by, sort_by, delta_updates=False)])
        events = make_version(version)
        store_events(runtime, [*events.values()], with_loads=True, publish=True)
        documents |= events
    check(tmp_path, documents, spark_files)
    before = load_events(tmp_path)
    snapshot = before.current_snapshot()
    assert snapshot
    before.manage_snapshots().create_tag(snapshot.snapshot_id, "before_backfill").commit()
    runtime.backfill()
    runtime.apply()
    check(tmp_path, documents, spark_files)  # the rows of before, until the first commit
    again = {number: make_event(number, 9) for number in range(10)}
    store_events(runtime, [*again.values()], with_loads=True)
    check(tmp_path, again, spark_files)
    after = load_events(tmp_path)
    assert (after.metadata.table_uuid, after.location()) == (before.metadata.table_uuid, before.location())
    notes = sorted(event["note"] for event in documents.values())
    of_before = after.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("note",)).to_arrow()
    assert sorted(of_before["note"].to_pylist()) == notes
    with spark_files.table(after.metadata_location) as registered:
        [tagged] = spark_files.spark.rows(
            f"SELECT note FROM {registered} VERSION AS OF 'before_backfill' ORDER BY note"
        )
    assert [row["note"] for row in tagged] == notes


def test_every_engine_reads_a_compacted_table_whose_rows_are_updated(
    tmp_path: Path, spark_files: MetadataFiles
) -> None:
    """Updates move rows to the other partition, before the compaction and after it. The session goes on meanwhile."""
    runtime = Runtime(tmp_path, [make_compactable(*ARRANGEMENTS[0])])
    documents: dict[int, Any] = {}
    with runtime.open(publish=True) as session:
        for version in range(3):
            events = make_version(version)
            transact(session, [*events.values()], with_loads=True)
            documents |= events
        check(tmp_path, documents, spark_files)
        result = compact(readers_catalog(tmp_path / "warehouse"), TableIdentifier("shop", "events"))
        assert result.deleted_rows > 0 < result.delete_files
        assert result.files_before > result.files_after == len(DAYS)
        files = [Path(task.file.file_path).name for task in load_events(tmp_path).scan().plan_files()]
        assert len([name for name in files if name.startswith("compact-")]) == len(DAYS)
        check(tmp_path, documents, spark_files)
        events = make_version(3)
        assert transact(session, [*events.values()], with_loads=True) == documents.keys() & events.keys()
        documents |= events
        check(tmp_path, documents, spark_files)
        assert session.finish().status == 0


def make_version(version: int) -> dict[int, Any]:
    """Return events by key, of which most are in the version before, too."""
    return {number: make_event(number, version) for number in range(version * 5, version * 5 + 20)}


def make_compactable(partition_by: str, sort_by: str) -> Collection:
    """Return the collection. Its table is compacted when a test does it, and then as a whole."""
    events = arranged(partition_by, sort_by, delta_updates=False)
    properties = EAGER | {"flow.compaction.enabled": "false"}
    return replace(events, settings={**events.settings, "additional_table_properties": properties})
