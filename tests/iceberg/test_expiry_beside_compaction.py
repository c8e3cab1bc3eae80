"""A compaction gives groups up whose files are deleted meanwhile, because their snapshots expire within seconds."""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import FailedGroup, FileGroup, GroupOutcome
from connector.host.errors import RetryableError
from connector.host.refresh import Refreshed
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.properties import Properties
from support.bindings import PATH
from support.rows.staged_files import place_of
from support.rows.updated_rows import land, make_table, values_of
from support.tables.altered_tables import entries
from support.tables.compacting import EAGER, compact_here
from support.tables.local_tables import upgrade_to_version_3

pytestmark = pytest.mark.long


@pytest.fixture(params=[2, 3], ids="version {}".format)
def catalog(catalog: Catalog, request: pytest.FixtureRequest) -> Catalog:
    """Ten rows in a file, one of which is deleted by a delete file or a vector, and single rows in other files."""
    make_table(catalog, None, **EAGER, **{MAX_AGE: "0"})
    if request.param == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, dict.fromkeys(range(10), "a"))
    for number in range(10, 14):
        land(catalog, {number: "a"})
    land(catalog, {3: "b"})
    return catalog


def change(catalog: Catalog, values: dict[int, Any], removed: Sequence[int]) -> None:
    """A transaction replaces files, and their snapshots expire."""
    before = stored(catalog)
    land(catalog, values, removed)
    expire_snapshots(catalog, PATH)
    assert before - stored(catalog), "a file is gone"
    deleted_rows._read.clear()  # a worker of Spark has read it, and no other


def stored(catalog: Catalog) -> set[Path]:
    return set(place_of(catalog.load_table(PATH).location()).rglob("data/*"))


def compact(
    catalog: Catalog, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
) -> CompactionResult:
    """Compact once, as Spark's tasks do. Something happens before the files are read, or after they are written."""
    pending = [before, after]

    def perform(
        target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
    ) -> Generator[GroupOutcome, None, None]:
        if pending:
            pending.pop(0)()
        for group in groups:
            try:
                yield from compact_here(target, [group], access)
            except RetryableError as error:
                yield FailedGroup(group, error)
        if pending:
            pending.pop(0)()

    return TableCompactor(catalog, perform, catalog.load_table).compact(PATH)


@pytest.mark.parametrize("is_written", [False, True], ids=["before it is read", "after it is written"])
@pytest.mark.parametrize(
    ("values", "removed"), [({4: "c"}, ()), ({}, (10,))], ids=["a delete file is merged", "a data file is dropped"]
)
def test_a_group_whose_files_are_gone_is_given_up_without_a_warning(
    catalog: Catalog,
    caplog: pytest.LogCaptureFixture,
    *,
    values: dict[int, Any],
    removed: tuple[int, ...],
    is_written: bool,
) -> None:
    caplog.set_level(logging.INFO, "connector")
    expected = {number: value for number, value in ({**values_of(catalog), **values}).items() if number not in removed}
    happen = {"after" if is_written else "before": lambda: change(catalog, values, removed)}
    result = compact(catalog, **happen)
    assert result.failed == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert values_of(catalog) == expected
    assert compact(catalog).failed == 0
    assert values_of(catalog) == expected


@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_file_that_the_table_still_has_is_missed(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, has_vectors: bool
) -> None:
    if has_vectors:
        upgrade_to_version_3(catalog, PATH)
        land(catalog, {4: "b"})
    largest = max((entry.data_file for entry in entries(catalog)), key=lambda file: file.record_count)
    place = place_of(largest.file_path)
    result = compact(catalog, before=place.unlink)
    assert (result.dropped, result.failed) == (0, 1)
    assert "1 data file(s) were not compacted" in caplog.text
    assert place.name in caplog.text
