"""Partitions and a sort order, from the config to the files: what a binding says, and then says otherwise."""

from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from fixtures.collection import Collection, Field
from fixtures.conversation import Row
from support.readers import local_catalog
from support.runtime import Runtime

pytestmark = pytest.mark.spark

BUCKET: Final = BucketTransform(4).transform(LongType())
ARRANGEMENTS: Final = (("day(at)", "at desc"), ("bucket(4, id), truncate(1, note)", ""), ("", "note"))
EVENTS: Final = Collection(
    "acmeCo/events",
    "events",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("at", "/at", ("string",), string={"format": "date-time"}),
        Field("note", "/note", ("string",)),
    ),
)
DAYS: Final = ("2024-02-29", "2024-03-01")


def arranged(partition_by: str, sort_by: str, *, delta_updates: bool = True) -> Collection:
    settings = {"partition_by": partition_by, "sort_by": sort_by, "delta_updates": delta_updates}
    return replace(EVENTS, settings=settings)


def make_event(number: int, version: int = 0) -> Any:
    hour = 23 - (number * 7) % 24
    day = DAYS[(number + version) % 2]
    return {"id": number, "at": f"{day}T{hour:02}:00:00Z", "note": f"v{version} of {number}"}


def load_events(directory: Path) -> Table:
    return local_catalog(directory / "warehouse").load_table(("shop", "events"))


def rows(table: Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["note"]) for row in table.scan(selected_fields=("id", "note")).to_arrow().to_pylist())


def files(table: Table) -> list[tuple[int, dict[str, Any], list[dict[str, Any]]]]:
    """Each data file's spec, partition and rows, in their order."""
    found = []
    for task in table.scan().plan_files():
        file, spec = task.file, table.specs()[task.file.spec_id]
        partition = {field.name: file.partition[place] for place, field in enumerate(spec.fields)}
        path = file.file_path.removeprefix("file://")
        found.append((file.spec_id, partition, pq.ParquetFile(path).read().to_pylist()))
    return found


def check_file(spec_id: int, partition: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The file is as the publication with this number says."""
    match spec_id:
        case 0:
            assert {(row["at"].date() - date(1970, 1, 1)).days for row in rows} == {partition["at_day"]}
            assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
        case 1:
            assert {(BUCKET(row["id"]), row["note"][:1]) for row in rows} == {tuple(partition.values())}
        case 2:
            assert partition == {}
            assert [row["note"] for row in rows] == sorted(row["note"] for row in rows)


def run_session(runtime: Runtime, events: list[Any], *, with_loads: bool) -> set[int]:
    """Store the events. Return the keys of those that were loaded."""
    with runtime.open() as session:
        if with_loads:
            session.load(*([event["id"]] for event in events))
        loaded = {document["id"] for _, document in session.flush()}
        session.store_rows(*(Row(0, event, exists=event["id"] in loaded) for event in events))
        session.start_commit()
        session.acknowledge()
        ended = session.finish()
        assert ended.status == 0, ended.log
    return loaded


@pytest.mark.parametrize("delta_updates", [True, False])
def test_rows_go_to_the_partitions_of_each_publication(tmp_path: Path, delta_updates: bool) -> None:
    publications = [
        arranged(partition_by, sort_by, delta_updates=delta_updates) for partition_by, sort_by in ARRANGEMENTS
    ]
    runtime = Runtime(tmp_path, publications[:1])
    expected: list[tuple[int, str]] = []
    for version, published in enumerate(publications):
        if version:
            runtime.change([published])
        runtime.apply()
        events = [make_event(number, version) for number in range(version * 5, version * 5 + 20)]
        known = set() if delta_updates else {event["id"] for event in events} & {number for number, _ in expected}
        assert run_session(runtime, events, with_loads=not delta_updates) == known
        expected = [row for row in expected if row[0] not in known]
        expected += [(event["id"], event["note"]) for event in events]
        assert rows(load_events(tmp_path)) == sorted(expected)
    found = files(load_events(tmp_path))
    for spec_id, partition, of_file in found:
        check_file(spec_id, partition, of_file)
    left = range(5, 25) if delta_updates else range(5, 10)  # of the second publication
    assert Counter(spec_id for spec_id, _, _ in found) == {0: 2, 1: len({*map(BUCKET, left)}), 2: 1}
