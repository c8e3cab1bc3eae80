"""Partitions and a sort order, from the config to the files: what a binding says, and then says otherwise."""

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from support.rows.arranged_events import ARRANGEMENTS, arranged, load_events, make_event, store_events
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark

BUCKET: Final = BucketTransform(4).transform(LongType())


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
            assert {(row["happened"].date() - date(1970, 1, 1)).days for row in rows} == {partition["happened_day"]}
            assert [row["happened"] for row in rows] == sorted((row["happened"] for row in rows), reverse=True)
        case 1:
            assert {(BUCKET(row["id"]), row["note"][:1]) for row in rows} == {tuple(partition.values())}
        case 2:
            assert partition == {}
            assert [row["note"] for row in rows] == sorted(row["note"] for row in rows)


@pytest.mark.slow  # engines read partitions that have changed in test_readers_of_arranged_tables.py
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
        events = [make_event(number, version) for number in range(version * 5, version * 5 + 20)]
        known = set() if delta_updates else {event["id"] for event in events} & {number for number, _ in expected}
        assert store_events(runtime, events, with_loads=not delta_updates, publish=True) == known
        expected = [row for row in expected if row[0] not in known]
        expected += [(event["id"], event["note"]) for event in events]
        assert rows(load_events(tmp_path)) == sorted(expected)
    found = files(load_events(tmp_path))
    for spec_id, partition, of_file in found:
        check_file(spec_id, partition, of_file)
    left = range(5, 25) if delta_updates else range(5, 10)  # of the second publication
    assert Counter(spec_id for spec_id, _, _ in found) == {0: 2, 1: len({*map(BUCKET, left)}), 2: 1}
