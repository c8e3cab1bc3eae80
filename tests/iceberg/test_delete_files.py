"""Delete files stay few, and what is deleted stays deleted: as other engines read it, and as the summaries count it."""

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.deleted_rows import read_deleted_rows, remember_deleted_rows
from connector.host.errors import RetryableError, UserError
from connector.iceberg.commits import delete_files, delete_merging
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.storage.file_io import WrittenFile
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.engines.readers import duckdb_connection
from support.rows.staged_files import removed
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import land, make_table, row, stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import append, current_manifests, entries
from support.tables.local_tables import upgrade_to_version_3

MOST = 4


@pytest.fixture
def catalog(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(delete_merging, "MAX_PARTITION_SCOPED", MOST)
    make_table(catalog)
    return catalog


def listed(catalog: Catalog, content: DataFileContent = DataFileContent.POSITION_DELETES) -> list[ManifestEntry]:
    return [entry for entry in entries(catalog) if entry.data_file.content is content]


def of_deletes(catalog: Catalog) -> list[ManifestFile]:
    manifests = current_manifests(catalog.load_table(PATH))
    return [manifest for manifest in manifests if manifest.content is ManifestContent.DELETES]


def summary(catalog: Catalog) -> dict[str, str]:
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def check_totals(catalog: Catalog) -> None:
    """The totals are what the manifests list."""
    found = entries(catalog)
    of_data = [entry.data_file for entry in found if entry.data_file.content is DataFileContent.DATA]
    deletes = [entry.data_file for entry in found if entry.data_file.content is not DataFileContent.DATA]
    said = {name: number for name, number in summary(catalog).items() if name.startswith("total-")}
    assert said == {
        "total-data-files": str(len(of_data)),
        "total-delete-files": str(len(deletes)),
        "total-records": str(sum(file.record_count for file in of_data)),
        "total-files-size": str(sum(file.file_size_in_bytes for file in (*of_data, *deletes))),
        "total-position-deletes": str(sum(file.record_count for file in deletes)),
        "total-equality-deletes": "0",
    }


def test_a_summary_says_what_a_commit_has_added_and_deleted(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    assert summary(catalog)["operation"] == "append"
    land(catalog, {1: "b"})
    found = summary(catalog)
    assert found["operation"] == "overwrite"
    assert {name: found[name] for name in found if "delete" in name and not name.startswith("total")} == {
        "added-delete-files": "1",
        "added-position-delete-files": "1",
        "added-position-deletes": "1",
        "flow.deleted-rows": "1",
    }
    check_totals(catalog)


def test_other_engines_read_one_row_for_each_key(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "a", 2: "a", 3: "a"})
    land(catalog, {1: "b"}, removed=[3])
    append(catalog, row(4, "foreign"))
    land(catalog, {4: "c"})
    location = catalog.load_table(PATH).metadata_location.removeprefix("file://")
    with duckdb_connection(tmp_path / "extensions") as duckdb:
        rows = duckdb.sql(f"SELECT id, doc->>'value' FROM iceberg_scan('{location}') ORDER BY id").fetchall()
    assert rows == [(1, "b"), (2, "a"), (4, "c")]
    assert values_of(catalog) == {1: "b", 2: "a", 4: "c"}


@pytest.mark.parametrize(
    ("touched", "files"), [(delete_files.FILE_SCOPED_UP_TO, delete_files.FILE_SCOPED_UP_TO), (12, 1)]
)
def test_a_few_data_files_get_a_delete_file_each_and_many_get_one_together(
    catalog: Catalog, touched: int, files: int
) -> None:
    for number in range(touched):
        append(catalog, row(number, "a"), row(100 + number, "a"))
    land(catalog, dict.fromkeys(range(touched), "b"))
    assert len(listed(catalog)) == files
    assert values_of(catalog) == dict.fromkeys(range(touched), "b") | dict.fromkeys(range(100, 100 + touched), "a")


def test_a_data_file_has_one_delete_file_however_often_its_rows_are_updated(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    for number in range(5):
        land(catalog, {number: "b"})
    [merged] = listed(catalog)
    assert merged.data_file.record_count == 5
    assert summary(catalog)["removed-position-delete-files"] == "1"
    check_totals(catalog)
    assert values_of(catalog) == {number: "b" if number < 5 else "a" for number in range(10)}


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_file_that_this_process_has_written_is_not_read_again(catalog: Catalog, version: int) -> None:
    if version == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {0: "b"})
    [own] = listed(catalog)
    with removed(own.data_file.file_path):
        land(catalog, {1: "b"})
    [merged] = listed(catalog)
    assert merged.data_file.record_count == 2
    assert values_of(catalog) == {number: "b" if number < 2 else "a" for number in range(10)}


def test_delete_files_that_this_process_has_written_take_little_memory(catalog: Catalog) -> None:
    """The next commits replace most of them. Only those that were written last are kept in memory."""
    io, rows = catalog.load_table(PATH).io, np.arange(8_000)
    written = [f"file:///gone/{number}.parquet" for number in range(1_000)]
    for path in written:
        remember_deleted_rows(path, {"data.parquet": rows})
    kept = [path for path in written if is_remembered(io, path)]
    assert kept == written[-len(kept) :]
    assert 10 < len(kept) < 100


def test_delete_files_of_few_rows_take_no_more_memory_than_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LRUCache[Any, Any](deleted_rows._WRITTEN, getsizeof=deleted_rows._size_of)
    monkeypatch.setattr(deleted_rows, "_written", cache)
    tracemalloc.start()
    try:
        for number in range(1_000):
            directory = f"s3://lake/warehouse/shop.db/orders/data/{number:064}"
            remember_deleted_rows(f"{directory}-deletes.parquet", {f"{directory}.parquet": np.arange(1)})
        assert tracemalloc.get_traced_memory()[0] < cache.currsize < deleted_rows._WRITTEN
    finally:
        tracemalloc.stop()


def is_remembered(io: FileIO, path: str) -> bool:
    try:
        return bool(read_deleted_rows(io, path))
    except RetryableError:  # the file is not there
        return False


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["-deletes", "-m0.avro", "snap-"])
def test_a_delete_file_is_sent_with_its_manifest_also_by_a_later_attempt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, version: int, kind: str
) -> None:
    if version == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, dict.fromkeys(range(10), "a"))
    write, sent = WrittenFile._write, list[str]()

    def fail_once(file: WrittenFile) -> None:
        sent.append(file.location)
        if kind in file.location and sum(kind in location for location in sent) == 1:
            raise OSError("the store does not answer")
        write(file)

    monkeypatch.setattr(WrittenFile, "_write", fail_once)
    land(catalog, {0: "b"})
    assert sum("-deletes" in location for location in sent) == 1 + (kind == "-deletes"), "once, unless that failed"
    assert values_of(catalog) == {0: "b"} | dict.fromkeys(range(1, 10), "a")


def test_a_file_is_written_once_if_a_thread_of_an_earlier_attempt_still_writes_it(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, begun, again = WrittenFile._write, threading.Event(), threading.Event()

    def write_slowly(file: WrittenFile) -> None:
        if begun.is_set():
            again.set()
        begun.set()
        again.wait(1)
        write(file)

    monkeypatch.setattr(WrittenFile, "_write", write_slowly)
    file = WrittenFile(catalog.load_table(PATH).io, f"file://{tmp_path}/written.parquet", [b"content"])
    earlier = threading.Thread(target=file.send)
    earlier.start()
    begun.wait()
    file.send()
    earlier.join()
    assert not again.is_set()
    assert (tmp_path / "written.parquet").read_bytes() == b"content"


def test_a_large_delete_file_is_not_kept_in_memory(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_files, "KEPT_BYTES", 1)
    land(catalog, dict.fromkeys(range(10), "a"))
    send, sent = WrittenFile.send, list[bool]()

    def note(file: WrittenFile) -> None:
        sent.append("-deletes" in file.location)
        send(file)

    monkeypatch.setattr(WrittenFile, "send", note)
    land(catalog, {0: "b"})
    assert sent[0], "before its manifest is made"
    assert sum(sent) == 1
    assert values_of(catalog) == {0: "b"} | dict.fromkeys(range(1, 10), "a")


def test_a_delete_file_of_a_data_file_that_is_gone_goes_when_it_is_merged(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    delete_position(catalog.load_table(PATH), "file:///gone.parquet", 0)
    land(catalog, {1: "b"})
    [merged] = listed(catalog)
    assert merged.data_file.record_count == 1
    assert values_of(catalog) == {1: "b", 2: "a"}


@pytest.mark.long
@pytest.mark.parametrize("first", [3, 12])
def test_a_table_has_no_more_delete_files_than_data_files(catalog: Catalog, first: int) -> None:
    for number in range(first):
        append(catalog, *(row(20 * number + each, "a") for each in range(20)))
    most, updated = 0, range(12)
    for each in updated:
        land(catalog, {20 * number + each: "b" for number in range(first)})
        found = len(listed(catalog))
        assert found <= len(listed(catalog, DataFileContent.DATA))
        check_totals(catalog)
        most = max(most, found)
    assert len(listed(catalog)) < most or first == 3, "some were merged"
    assert values_of(catalog) == {number: "b" if number % 20 in updated else "a" for number in range(20 * first)}


def test_delete_files_of_other_engines_are_merged_too_and_those_of_files_that_are_gone_are_dropped(
    catalog: Catalog,
) -> None:
    append(catalog, *(row(number, "a") for number in range(10)))
    [file] = listed(catalog, DataFileContent.DATA)
    for position in range(MOST + 1):
        delete_position(catalog.load_table(PATH), file.data_file.file_path, position)
    land(catalog, {8: "b", 9: "b"})
    [merged] = listed(catalog)
    assert merged.data_file.record_count == MOST + 3
    assert values_of(catalog) == {number: "b" if number >= 8 else "a" for number in range(MOST + 1, 10)}


def test_a_data_file_without_rows_leaves_the_table_with_its_delete_files(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {3: "a", 4: "a"})
    land(catalog, {1: "b"})
    land(catalog, {2: "c"})
    assert len(listed(catalog, DataFileContent.DATA)) == 3
    assert not listed(catalog)
    assert summary(catalog)["deleted-data-files"] == "1"
    check_totals(catalog)
    assert values_of(catalog) == {1: "b", 2: "c", 3: "a", 4: "a"}


def test_deletes_of_rows_that_a_file_does_not_have_drop_no_file(catalog: Catalog) -> None:
    """Another engine's delete file may have wrong positions. Readers ignore them."""
    land(catalog, {1: "a", 2: "a"})
    [file] = listed(catalog, DataFileContent.DATA)
    delete_position(catalog.load_table(PATH), file.data_file.file_path, 7)
    land(catalog, {1: "b"})
    assert values_of(catalog) == {1: "b", 2: "a"}
    land(catalog, {2: "b"})
    assert values_of(catalog) == {1: "b", 2: "b"}
    assert file.data_file.file_path not in {each.data_file.file_path for each in listed(catalog, DataFileContent.DATA)}


def test_a_large_manifest_is_not_written_again_to_drop_one_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_merging, "LARGEST_MANIFEST", 0)
    land(catalog, {1: "a"})
    land(catalog, {1: "b"})
    assert len(listed(catalog, DataFileContent.DATA)) == 2
    assert values_of(catalog) == {1: "b"}


def test_manifests_of_delete_files_are_merged_and_the_files_still_apply(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    for number in range(4):
        append(catalog, row(number, "a"), row(100 + number, "a"))
    for number in range(3):
        land(catalog, {number: "b"})
    # The file is added after the deletes: they must not get its sequence number.
    append(catalog, row(50, "a"))
    assert [manifest.existing_files_count for manifest in of_deletes(catalog)] == [0, 2]
    numbers = [entry.sequence_number for entry in listed(catalog)]
    assert len(set(numbers)) == 3
    assert len(values_of(catalog)) == 9


def test_equality_deletes_in_a_merged_manifest_can_be_read_by_java(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {3: "a", 4: "a"})
    land(catalog, {3: "b"})
    staged = stage_updates(catalog, {1: "b"})
    delete_equal(catalog.load_table(PATH), 2)
    commit_all_or_raise(catalog, [staged])
    [equality] = listed(catalog, DataFileContent.EQUALITY_DELETES)
    assert equality.data_file.equality_ids == [1]
    [_, merged] = of_deletes(catalog)
    assert merged.existing_files_count == 2
    assert b'"items": "int"' in Path(merged.manifest_path.removeprefix("file://")).read_bytes()


def files(tmp_path: Path, ending: str) -> int:
    return len(list(tmp_path.rglob(f"*{ending}")))


def test_located_rows_and_delete_files_that_nobody_needs_are_deleted_and_no_others(
    catalog: Catalog, tmp_path: Path
) -> None:
    land(catalog, {1: "a", 2: "a", 3: "a"})
    land(catalog, {1: "b"})
    pending = stage_updates(catalog, {2: "c"})
    assert pending.located
    assert pending.located.location
    left = pending.located.location.replace("-located", "-deletes")
    with catalog.load_table(PATH).io.new_output(left).create() as stream:
        stream.write(b"of an attempt that was refused")
    assert remove_task_orphans(catalog, PATH, WRITER, [pending]) == 1, "the located rows of the first update"
    commit_all_or_raise(catalog, [pending])
    assert remove_task_orphans(catalog, PATH, WRITER, []) == 2
    assert files(tmp_path, "-located.parquet") == 0
    assert files(tmp_path, "-deletes.parquet") == 2
    assert values_of(catalog) == {1: "b", 2: "c", 3: "a"}


def test_delete_files_that_were_merged_are_deleted_when_their_snapshots_expire(
    catalog: Catalog, tmp_path: Path
) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    for number in range(MOST + 2):
        land(catalog, {number: "b"})
    assert files(tmp_path, "-deletes.parquet") == MOST + 2
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    expire_snapshots(catalog, PATH)
    assert files(tmp_path, "-deletes.parquet") == 1
    assert values_of(catalog) == {number: "b" if number < MOST + 2 else "a" for number in range(10)}


def test_deletes_that_are_no_parquet_stop_a_commit_of_vectors(catalog: Catalog) -> None:
    """Readers would skip them where there is a vector: their rows would come back."""
    land(catalog, {1: "a", 2: "a", 3: "a"})
    staged = stage_updates(catalog, {1: "b"})
    [file] = listed(catalog, DataFileContent.DATA)
    delete_position(catalog.load_table(PATH), file.data_file.file_path, 2, FileFormat.ORC)
    upgrade_to_version_3(catalog, PATH)
    before = catalog.load_table(PATH).current_snapshot()
    with pytest.raises(UserError) as error:
        commit_all_or_raise(catalog, [staged])
    assert catalog.load_table(PATH).current_snapshot() == before
    [delete] = listed(catalog)
    check_text(
        "update_errors",
        "vectors would replace deletes that are not Parquet",
        str(error.value),
        {delete.data_file.file_path: "<file>"},
    )
