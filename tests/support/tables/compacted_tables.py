"""A table with updates and partitions that is compacted between its transactions, in any catalog."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.model.table_identifier import TableIdentifier
from support.rows.updated_rows import BY_PART, DOCUMENT, PART, stage_updates, values_of
from support.tables.altered_tables import ID
from support.tables.compacting import EAGER, compact, compact_here
from support.tables.planted_faults import do_first, plant

# Values by id: in partition "a" those below 10, in "b" the others.
FIRST: Final = dict.fromkeys(range(9), "a1") | dict.fromkeys(range(10, 19), "b1")


def check_compactions(
    catalog: Catalog, path: TableIdentifier, location: str | None = None, prepare: Callable[[], None] = lambda: None
) -> None:
    """Compact while a transaction deletes rows, while a staged one still knows rows at their old places, and while a
    transaction is faster. `prepare` changes the new table."""
    catalog.create_namespace_if_not_exists(path[0])
    catalog.create_table(path, Schema(ID, DOCUMENT, PART), location, BY_PART, properties=EAGER)
    prepare()

    def land(values: dict[int, Any], removed: Iterable[int] = ()) -> None:
        commit_all_or_raise(catalog, [stage_updates(catalog, values, removed, path=path)])

    land(FIRST)
    land({20: "a1", 21: "b1"})
    land({1: "a2", 10: "a2"}, removed=[2, 11])  # 10 moves to the other partition
    result = compact(catalog, path, lambda: land({3: "a3", 12: "a3", 20: "b3"}, removed=[4, 13]))
    assert (result.commits, result.files_after, result.dropped) == (1, 2, 0)
    assert count_files(catalog, path, "compact-") == 2
    changed = {1: "a2", 10: "a2", 3: "a3", 12: "a3", 20: "b3", 21: "b1"}
    expected = without({**FIRST, **changed}, 2, 4, 11, 13)
    check_rows(catalog, path, expected)

    staged = stage_updates(catalog, {0: "a4", 3: "b4"}, [5, 14, 20], path=path)
    assert staged.located is not None
    assert compact(catalog, path).commits == 1
    check_rows(catalog, path, expected)
    assert count_files(catalog, path, content=DataFileContent.POSITION_DELETES) == 0
    commit_all_or_raise(catalog, [staged])
    expected = without({**expected, 0: "a4", 3: "b4"}, 5, 14, 20)
    check_rows(catalog, path, expected)

    result = compact_after(catalog, path, lambda: land({1: "a5"}, removed=[15]))
    assert result.commits > 0 == result.dropped, result
    check_rows(catalog, path, without({**expected, 1: "a5"}, 15))


def compact_after(catalog: Catalog, path: TableIdentifier, commit: Callable[[], None]) -> CompactionResult:
    """Compact. When it has loaded the table for its commit, another commit is faster."""
    plant(catalog, [do_first(commit)])
    return TableCompactor(catalog, compact_here, catalog.load_table).compact(path)


def without(values: dict[int, Any], *removed: int) -> dict[int, Any]:
    """Return the values of other ids."""
    return {number: value for number, value in values.items() if number not in removed}


def check_rows(catalog: Catalog, path: TableIdentifier, expected: dict[int, Any]) -> None:
    """Read the table as a whole, and each partition: readers skip files of others."""
    assert values_of(catalog, path) == dict(sorted(expected.items()))
    for part in "ab":
        of_part = {number: value for number, value in sorted(expected.items()) if value.startswith(part)}
        assert values_of(catalog, path, f"part = '{part}'") == of_part


def count_files(
    catalog: Catalog, path: TableIdentifier, prefix: str = "", content: DataFileContent = DataFileContent.DATA
) -> int:
    """Return how many files of the current snapshot have names that begin like this."""
    listed = ManifestCache().list_files(catalog.load_table(path))
    return sum(each.content is content and each.path.rpartition("/")[2].startswith(prefix) for each in listed)
