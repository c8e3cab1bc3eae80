"""Small manifests are folded: every file keeps what other engines' deletes go by, and none comes back or is lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.transforms import IdentityTransform

from connector.iceberg.metadata.manifest_merging import MergeThresholds, find_mergeable
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal
from support.rows.staged_files import land
from support.tables.local_tables import ID_ONLY, foreign_table, ids_of, table_of
from support.tables.planted_faults import do_first, plant

COUNT = "commit.manifest.min-count-to-merge"
SIZE = "commit.manifest.target-size-bytes"
ENABLED = "commit.manifest-merge.enabled"


def append(catalog: Catalog, *ids: int) -> None:
    table_of(catalog).append(pa.table({"id": list(ids)}, schema=ID_ONLY.as_arrow()))


def manifests(catalog: Catalog) -> list[ManifestFile]:
    table = table_of(catalog)
    snapshot = table.current_snapshot()
    return snapshot.manifests(table.io) if snapshot else []


@dataclass(frozen=True)
class Known:
    """What a table knows of a data file, by which deletes apply to it and incremental readers find it."""

    path: str
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    rows: int


def known_files(catalog: Catalog) -> set[Known]:
    table = table_of(catalog)
    return {
        Known(
            entry.data_file.file_path,
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            entry.data_file.record_count,
        )
        for manifest in manifests(catalog)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def metadata_files(catalog: Catalog, pattern: str) -> set[Path]:
    return set(Path(table_of(catalog).location().removeprefix("file://"), "metadata").glob(pattern))


def test_a_table_has_few_manifests_however_many_commits_it_gets(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={COUNT: "5"})
    counts = []
    for number in range(40):
        land(catalog, number)
        counts.append(len(manifests(catalog)))
    assert max(counts) <= 5 + 3  # of 5, 10 and 20 files
    assert ids_of(catalog, PATH) == list(range(40))


def test_a_folded_file_keeps_its_snapshot_and_its_sequence_numbers(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={COUNT: "4"})
    for number in range(3):
        land(catalog, number)
    before = known_files(catalog)
    land(catalog, 3)
    assert [len(manifest.fetch_manifest_entry(table_of(catalog).io)) for manifest in manifests(catalog)] == [1, 3]
    folded = manifests(catalog)[1]
    assert {entry.status for entry in folded.fetch_manifest_entry(table_of(catalog).io)} == {
        ManifestEntryStatus.EXISTING
    }
    assert (folded.min_sequence_number, folded.sequence_number) == (1, 4)
    assert before < known_files(catalog)


def test_a_file_that_another_engine_has_deleted_does_not_come_back(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={COUNT: "4"})
    for number in range(3):
        land(catalog, number)
    table_of(catalog).delete("id = 1")
    for number in range(3, 6):
        land(catalog, number)
    assert ids_of(catalog, PATH) == [0, 2, 3, 4, 5]
    assert all(manifest.deleted_files_count == 0 for manifest in manifests(catalog))


def test_a_manifest_without_a_file_left_goes_with_the_next_commit(catalog: Catalog) -> None:
    foreign_table(catalog, PATH)
    land(catalog, 1)
    table_of(catalog).delete("id >= 0")
    assert [manifest.deleted_files_count for manifest in manifests(catalog)] == [1]
    land(catalog, 2)
    assert [manifest.added_files_count for manifest in manifests(catalog)] == [1]
    assert ids_of(catalog, PATH) == [2]


def test_other_engines_small_manifests_are_folded_too(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={COUNT: "4"})
    for number in range(3):
        append(catalog, number)
    before = known_files(catalog)
    land(catalog, 3)
    assert len(manifests(catalog)) == 2
    assert before < known_files(catalog)


def test_delete_manifests_and_those_of_other_specs_are_left_alone(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH, properties={COUNT: "4"})
    with table.update_spec() as spec:
        spec.add_field("id", IdentityTransform())
    append(catalog, 100)
    append(catalog, 101)
    delete_equal(table_of(catalog), 100)
    delete_equal(table_of(catalog), 101)
    untouched = {manifest.manifest_path for manifest in manifests(catalog)}
    for number in range(6):
        land(catalog, number)
    assert untouched < {manifest.manifest_path for manifest in manifests(catalog)}
    assert sum(manifest.content == ManifestContent.DELETES for manifest in manifests(catalog)) == 2
    assert len(manifests(catalog)) == len(untouched) + 4


@pytest.mark.parametrize(
    "properties",
    [{COUNT: "3", ENABLED: "false"}, {COUNT: "a few"}, {COUNT: "3", SIZE: "1000"}],
    ids=["turned off", "not a number", "all too large"],
)
def test_nothing_is_folded_where_the_tables_properties_do_not_ask_for_it(
    catalog: Catalog, properties: dict[str, str]
) -> None:
    foreign_table(catalog, PATH, properties=properties)
    for number in range(5):
        land(catalog, number)
    assert len(manifests(catalog)) == 5
    assert ids_of(catalog, PATH) == list(range(5))


def test_what_was_folded_before_a_conflict_is_not_believed_after_it(catalog: Catalog) -> None:
    """Else the other writer's delete would be undone."""
    foreign_table(catalog, PATH, properties={COUNT: "4"})
    for number in range(3):
        land(catalog, number)
    plant(catalog, [do_first(lambda: table_of(catalog).delete("id = 1"))])
    land(catalog, 3)
    assert ids_of(catalog, PATH) == [0, 2, 3]


def test_what_was_folded_is_used_again_under_the_commits_new_sequence_number(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={COUNT: "4"})
    for number in range(3):
        land(catalog, number)
    before = known_files(catalog), metadata_files(catalog, "*-m0.avro")
    plant(catalog, [do_first(lambda: delete_equal(table_of(catalog), 1))])
    land(catalog, 3)
    new = [
        manifest
        for manifest in manifests(catalog)
        if manifest.added_snapshot_id == table_of(catalog).metadata.current_snapshot_id
    ]
    assert [manifest.sequence_number for manifest in new] == [5, 5]
    assert before[0] < known_files(catalog)
    assert len(metadata_files(catalog, "*-m0.avro") - before[1]) == 3  # of the new file, of the folded, of the delete


def manifest_of(files: int, number: int, length: int = 5000) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"{number}.avro", manifest_length=length, added_files_count=files, deleted_files_count=None
    )


def total(chosen: Sequence[ManifestFile]) -> int:
    return sum(manifest.added_files_count or 0 for manifest in chosen)


def test_a_file_is_written_again_only_as_often_as_the_number_of_files_doubles() -> None:
    thresholds = MergeThresholds(count=10, size=1 << 40)
    held: list[ManifestFile] = []
    written = most = 0
    for number in range(5000):
        if chosen := find_mergeable(held, 1, thresholds):
            written += total(chosen)
            held = [manifest for manifest in held if manifest not in chosen] + [manifest_of(total(chosen), -number)]
        held.append(manifest_of(1, number))
        most = max(most, len(held))
    assert total(held) == 5000
    assert written <= 5000 * 10  # log2(5000 / 10), and the first time
    assert most <= 10 + 9


def test_what_is_folded_fits_a_manifest_of_the_target_size() -> None:
    small = [manifest_of(10, number, length=3000) for number in range(20)]
    large = [manifest_of(1, 100 + number, length=10_001) for number in range(20)]
    chosen = find_mergeable([*large, *small], 1, MergeThresholds(count=100, size=10_000))
    assert [manifest.manifest_length for manifest in chosen] == [3000] * 3
    assert find_mergeable(large, 1, MergeThresholds(count=2, size=10_000)) == []


def test_manifests_of_few_files_are_merged_whatever_the_others_list() -> None:
    held = [manifest_of(count, number) for number, count in enumerate((1, 20, 60))]
    assert find_mergeable(held, 0, MergeThresholds(count=2)) == []
    assert find_mergeable(held, 0, MergeThresholds(count=2, few=32)) == held[:2]
