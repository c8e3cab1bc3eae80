"""A Load finds the rows of the table's snapshot and of pending commits, each of them once."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, UnauthorizedError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.manifest import FileFormat, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.parquet.file_options import Destination
from connector.encoding.search.key_bounds import KeyValues
from connector.encoding.search.located_rows import SUFFIX, write_located
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.host.errors import ConnectorError, FencedError, LostColumnError, RetryableError, SignInError, UserError
from connector.iceberg import session_views, table_view
from connector.iceberg.commits import commit, delete_files
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import LastFences
from connector.iceberg.metadata import listed_files
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache, check_stores
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.table_properties import CONVERTED_PREFIX, find_generation
from connector.iceberg.session_views import SessionViews
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import Column
from connector.model.state import DataFile, FileList, LocatedRowsFile, StagedCommit
from connector.model.table_identifier import Generation, TableIdentifier
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position, list_delete_file
from support.engines.foreign_files import list_data_file
from support.rows.staged_files import listed, place_of
from support.rows.staged_rows import WRITER, staged
from support.rows.updated_rows import UPDATES, land, make_table, row, values_of
from support.snapshots import check_text
from support.tables.altered_tables import ID, append, filled_table, fit, wanted
from support.tables.local_tables import local_catalog
from support.tables.planted_faults import Fault, plant, refuse

KEY: Final = Column("id", "id", 1, LongType(), required=True)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = local_catalog(tmp_path)
    assert isinstance(catalog, SqlCatalog)
    return catalog


def view(catalog: Catalog, *pending: StagedCommit, unit_size: int = table_view.UNIT_SIZE) -> tuple[SearchedFile, ...]:
    table = catalog.load_table(PATH)
    found = ViewFactory(ManifestCache()).make(table, pending, unit_size)
    current = table.current_snapshot()
    assert found.snapshot_id == (current.snapshot_id if current else None)
    return found.files


def ids(catalog: Catalog, *files: SearchedFile) -> list[list[int]]:
    io = catalog.load_table(PATH).io
    found = []
    for file in files:
        with io.new_input(file.path).open() as stream:
            found.append(pq.read_table(stream)["id"].to_pylist())
    return found


def locating(catalog: Catalog, commit: StagedCommit, *rows: tuple[str, int]) -> StagedCommit:
    """The same, as if it deleted these rows."""
    table = catalog.load_table(PATH)
    location, snapshot = Destination.of_table(table, "x").new_location(SUFFIX), table.current_snapshot()
    located = [{"file_path": path, "pos": position, "key": "[1]"} for path, position in rows]
    write_located(table.io, location, [pa.Table.from_pylist(located)], UPDATES)
    return replace(commit, located=LocatedRowsFile(location, len(rows), snapshot.snapshot_id if snapshot else None))


def test_a_table_without_snapshots_has_nothing_to_find(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    assert view(catalog) == ()


def test_files_are_found_oldest_first_with_the_deletes_that_apply_to_them(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    [first] = view(catalog)
    delete_position(catalog.load_table(PATH), first.path, 0)
    append(catalog, {"id": 2})
    files = view(catalog)
    assert ids(catalog, *files) == [[1], [2]]
    assert [len(file.position_deletes) for file in files] == [1, 0]


class _CountedBounds(tuple[bytes, bytes]):
    """The bounds of a delete file. They count how often they are read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        _CountedBounds.reads += 1
        return super().__getitem__(place)


class _CountingReader(ManifestCache):
    def list_files(self, table: Table) -> list[ListedFile]:
        return [
            replace(file, bounds=_CountedBounds(file.bounds)) if file.bounds else file
            for file in super().list_files(table)
        ]


def test_not_each_data_file_is_compared_with_each_delete_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of many data files has a quarter as many delete files for several of them."""
    monkeypatch.setattr(delete_files, "FILE_SCOPED_UP_TO", 1)
    make_table(catalog)
    for number in range(12):
        land(catalog, {number: "a", 100 + number: "a"})
    for number in range(0, 12, 2):
        land(catalog, {number: "b", number + 1: "b"})
    monkeypatch.setattr(_CountedBounds, "reads", 0)
    files = ViewFactory(_CountingReader()).make(catalog.load_table(PATH), ()).files
    assert all(file.position_deletes for file in files[:12])
    assert _CountedBounds.reads <= 6 * 4, "each of 6 delete files is placed among the data files"


def test_the_rows_of_a_commit_that_waits_are_found_and_those_that_it_deletes_are_known(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    [live] = view(catalog)
    first = locating(catalog, staged(catalog, {"id": 2}), (live.path, 0))
    [_, waiting] = view(catalog, first)
    second = listed(catalog.load_table(PATH), staged(catalog, {"id": 3}, after=first))
    files = view(catalog, locating(catalog, second, (live.path, 2), (waiting.path, 1)), first)
    assert ids(catalog, *files) == [[1], [2], [3]]
    assert [file.pending_deletes.tolist() for file in files] == [[0, 2], [1], []]


def test_a_commit_that_the_table_has_is_not_found_twice(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    first = staged(catalog, {"id": 1})
    second = staged(catalog, {"id": 2}, after=first)
    commit.commit_all_or_raise(catalog, [first])
    assert ids(catalog, *view(catalog, first, second)) == [[1], [2]]


def test_a_commit_that_lands_while_the_view_is_made_is_found(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session retries pending commits in another thread."""
    table = filled_table(catalog, ID)
    pending, other, load_table = [staged(catalog, {"id": 1})], local_catalog(tmp_path), catalog.load_table

    def retry() -> None:
        commit.commit_all_or_raise(other, pending)
        pending.clear()

    def find_pending(*_: Any) -> list[StagedCommit]:
        found = [*pending]
        retry()
        return found

    def load(identifier: Any) -> Table:
        loaded = load_table(identifier)
        retry()
        return loaded

    monkeypatch.setattr(catalog, "load_table", load)
    views = SessionViews(catalog, ViewFactory(ManifestCache()), find_pending, LastFences(), {})
    keys = keys_of_texts(pa.array(["[1]"]), UPDATES.parts, [LongType()])
    found = views.find((TableIdentifier(*PATH), str(table.metadata.table_uuid)), WRITER, [KEY], keys)
    assert ids(catalog, *found.files) == [[1]]


def test_a_replaced_process_finds_nothing(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    stale = staged(catalog, {"id": 1})
    commit.commit_all_or_raise(catalog, [staged(catalog, {"id": 2})])
    with pytest.raises(FencedError):
        view(catalog, stale)


def test_rows_that_wait_in_the_form_of_another_schema_are_not_overlooked(catalog: Catalog) -> None:
    """Their files lack the key column that the session looks for."""
    filled_table(catalog, ID)
    late = staged(catalog, {"id": 1})
    fit(catalog, wanted("id", StringType()))
    with pytest.raises(RetryableError) as error:
        view(catalog, replace(late, is_recovered=True))
    check_text("update_errors", "rows wait that were staged before a conversion", str(error.value))


def test_a_large_file_is_divided_between_its_row_groups(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    waiting = staged(catalog, {"id": 1})
    [file] = waiting.files if isinstance(waiting.files, tuple) else ()
    large = replace(waiting, files=(DataFile(file.path, file.rows, 100, (4, 24, 44, 64, 84), file.columns),))
    units = [(unit.first_row_group, unit.row_groups) for unit in view(catalog, large, unit_size=40)]
    assert units == [(0, 1), (1, 2), (3, None)]
    assert [unit.row_groups for unit in view(catalog, large, unit_size=100)] == [None]


def test_a_file_may_have_less_row_groups_than_its_manifest_says(catalog: Catalog) -> None:
    make_table(catalog)
    written = staged(catalog, *(row(number, "a") for number in range(3)))
    [file] = written.files if isinstance(written.files, tuple) else ()
    changed = msgspec.structs.replace(file, splits=(4, 5, 6, 7), size=1000)
    commit.commit_all_or_raise(catalog, [replace(written, files=(changed,))])
    units = view(catalog, unit_size=250)
    assert [(unit.first_row_group, unit.row_groups) for unit in units] == [(0, 1), (1, 1), (2, 1), (3, None)]
    keys = SearchedKeys(keys_of_texts(pa.array(["[1]"]), UPDATES.parts, [LongType()]), UPDATES, ["id"])
    found = [rows for unit in units for rows in search(catalog.load_table(PATH).io, unit, keys, with_documents=True)]
    assert [rows.positions.tolist() for rows in found] == [[1]]


def test_a_manifest_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}], [{"id": 2}]])
    parsed: list[ManifestFile] = []
    of = listed_files.ListedFile.of

    def noted(manifest: ManifestFile, entry: ManifestEntry) -> listed_files.ListedFile:
        parsed.append(manifest)
        return of(manifest, entry)

    monkeypatch.setattr(listed_files.ListedFile, "of", noted)
    views = ViewFactory(ManifestCache())
    for _ in range(2):
        views.make(catalog.load_table(PATH), [])
    assert len(parsed) == 2
    append(catalog, {"id": 3})
    assert len(views.make(catalog.load_table(PATH), []).files) == 3
    assert len(parsed) == 3


def refusal(catalog: Catalog) -> str:
    with pytest.raises(UserError) as error:
        view(catalog)
    text = str(error.value)
    for file in catalog.load_table(PATH).inspect.all_files()["file_path"].to_pylist():
        text = text.replace(file, "<file>")
    return text


def test_equality_deletes_are_refused(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    delete_equal(catalog.load_table(PATH), 1)
    check_text("update_errors", "another writer deletes rows by their values", refusal(catalog))


def test_files_that_are_not_parquet_are_refused(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    table = catalog.load_table(PATH)
    [file] = ManifestCache().list_files(table)
    orc = replace(file, path="s3://bucket/orders.orc", format=FileFormat.ORC)
    with pytest.raises(UserError) as error:
        table_view.check_files(table, [orc])
    check_text("update_errors", "a data file is not Parquet", str(error.value))


@pytest.mark.parametrize("list_file", [list_data_file, list_delete_file])
def test_files_in_another_kind_of_store_are_refused(
    catalog: Catalog, tmp_path: Path, list_file: Callable[[Table, str], None]
) -> None:
    """Who has listed them need not have access to them, but the connector may."""
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    list_file(catalog.load_table(PATH), "s3://payroll/salaries.parquet")
    with pytest.raises(UserError) as error:
        view(catalog)
    check_text("update_errors", "a file is in another kind of store", str(error.value), {str(tmp_path): "…"})


def test_files_of_this_machine_are_refused_for_a_table_elsewhere(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    table = catalog.load_table(PATH)
    moved = table.metadata.model_copy(update={"location": "s3://bucket/orders"})
    elsewhere = Table(PATH, moved, table.metadata_location, table.io, catalog)
    with pytest.raises(
        UserError, match=r"file://.*\.parquet is in another kind of store than s3://bucket/orders, where"
    ):
        check_stores(elsewhere, ManifestCache().list_files(table))
    with pytest.raises(
        InvalidMetadataError, match=r"file://.*\.avro is in another kind of store than s3://bucket/orders, where"
    ):
        ViewFactory(ManifestCache()).make(elsewhere, [])


def test_a_table_that_was_moved_to_another_cloud_is_not_refused_for_its_older_manifests(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    table = catalog.load_table(PATH)
    moved = table.metadata.model_copy(update={"location": "s3://bucket/orders"})
    [snapshot] = (each.model_copy(update={"manifest_list": "gs://older/list.avro"}) for each in table.snapshots())
    asked: list[str] = []
    monkeypatch.setattr(table.io, "new_input", lambda location: asked.append(location))
    with pytest.raises(AttributeError):  # of the file, which is none
        manifests_of(Table(PATH, moved, table.metadata_location, table.io, catalog), snapshot)
    assert asked == ["gs://older/list.avro"]


class Session:
    """A session that has opened, and searches its table for some ids in each transaction."""

    def __init__(self, catalog: Catalog, *pending: StagedCommit) -> None:
        generation = find_generation(catalog.load_table(PATH), WRITER.materialization)
        self.table_id = TableIdentifier(*PATH), generation.uuid
        self.manifests, self.fences = ManifestCache(), LastFences()
        generations = {self.table_id: (generation.uuid, *generation.former)}
        self._views = SessionViews(catalog, ViewFactory(self.manifests), lambda *_: pending, self.fences, generations)

    def find(self, *numbers: int, key: Column = KEY) -> tuple[SearchedFile, ...]:
        keys = keys_of_texts(pa.array([f"[{number}]" for number in numbers]), UPDATES.parts, [key.type])
        return self._views.find(self.table_id, WRITER, [key], keys).files


def test_a_table_that_was_replaced_in_the_session_is_refused(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    session = Session(catalog)
    assert len(session.find(1)) == 1
    catalog.drop_table(PATH)
    filled_table(catalog, ID)
    with pytest.raises(UserError) as error:
        session.find(1)
    check_text("update_errors", "a table is replaced while Loads wait", str(error.value))


@pytest.mark.parametrize("successor", [None, 99])
def test_a_key_column_that_is_gone_is_missed(catalog: Catalog, successor: int | None) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    if successor:
        with catalog.load_table(PATH).transaction() as transaction:
            transaction.set_properties({f"{CONVERTED_PREFIX}0": str(successor)})
    session, key = Session(catalog), Column("old", "old", 0, LongType(), required=True)
    with pytest.raises(LostColumnError):
        session.find(1, key=key)


def test_a_key_column_that_is_converted_in_the_session_is_named(catalog: Catalog) -> None:
    """The files that were rewritten have the keys in another column than the one that the session searches."""
    make_table(catalog)
    land(catalog, {1: "a"})
    session = Session(catalog)
    assert len(session.find(1)) == 1
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    with pytest.raises(LostColumnError) as error:
        session.find(1)
    check_text("update_errors", "a key column is converted in the session", str(error.value))


def test_a_key_column_that_another_engine_widens_in_the_session_is_named(catalog: Catalog) -> None:
    """The keys of the session are no values of the wider column, which may have greater ones."""
    filled_table(catalog, NestedField(1, "id", IntegerType(), required=True), rows=[[{"id": 1}]])
    session, key = Session(catalog), Column("id", "id", 1, IntegerType(), required=True)
    assert len(session.find(1, key=key)) == 1
    with catalog.load_table(PATH).update_schema() as update:
        update.update_column("id", LongType())
    with pytest.raises(LostColumnError) as error:
        session.find(1, key=key)
    check_text("update_errors", "a key column gets another type in the session", str(error.value))


def test_a_table_that_is_gone_is_named(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    session = Session(catalog)
    catalog.drop_table(PATH)
    with pytest.raises(UserError) as error:
        session.find(1)
    check_text("update_errors", "a table is dropped while Loads wait", str(error.value))


def take_away(catalog: SqlCatalog, warehouse: Path) -> Path:
    """Take away the catalog's database, and return where it is kept."""
    catalog.engine.dispose()
    return (warehouse / "catalog.db").rename(warehouse / "away.db")


def test_a_catalog_that_is_down_for_a_while_only_delays_loads(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    session, away = Session(catalog), take_away(catalog, tmp_path)

    def restart(_: float) -> None:
        catalog.engine.dispose()
        away.rename(tmp_path / "catalog.db")

    monkeypatch.setattr("time.sleep", restart)
    assert len(session.find(1)) == 1
    assert "attempt 1 to read its snapshot" in caplog.text


def test_a_catalog_that_stays_down_fails_the_loads(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_views, "RETRY_FOR", 0.0)
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    session = Session(catalog)
    take_away(catalog, tmp_path)
    with pytest.raises(RetryableError) as error:
        session.find(1)
    check_text("update_errors", "a catalog is down while Loads wait", str(error.value))


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (UnauthorizedError("401"), SignInError, "the sign-in is refused while Loads wait"),
        (ForbiddenError("403"), UserError, "the reading of a table is forbidden while Loads wait"),
        (BadRequestError("400"), UserError, "a catalog refuses to give a table to Loads"),
    ],
    ids=str,
)
def test_a_catalog_that_refuses_fails_the_loads_with_a_remedy(
    catalog: SqlCatalog, answer: Exception, kind: type[ConnectorError], text: str
) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    session = Session(catalog)
    plant(catalog, [refuse(answer)], "load_table")
    with pytest.raises(kind) as error:
        session.find(1)
    check_text("update_errors", text, str(error.value))


def test_damaged_metadata_fail_the_loads(catalog: SqlCatalog) -> None:
    table = filled_table(catalog, ID, rows=[[{"id": 1}]])
    session, current = Session(catalog), table.refresh().current_snapshot()
    assert current
    Path(current.manifest_list.removeprefix("file://")).write_bytes(b"")
    with pytest.raises(RetryableError) as error:
        session.find(1)
    names = {current.manifest_list: "…/snap-….avro"}
    check_text("update_errors", "damaged metadata while Loads wait", str(error.value), names)


def test_a_manifest_of_a_partition_spec_that_is_gone_is_damage(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = filled_table(catalog, ID, rows=[[{"id": 1}]])
    file = place_of(table.refresh().metadata_location)
    file.write_text(file.read_text().replace('spec-id":0', 'spec-id":5'))
    with pytest.raises(RetryableError) as error:
        Session(local_catalog(tmp_path)).find(1)
    check_text("update_errors", "a manifest of a partition spec that is gone", str(error.value))


@pytest.mark.parametrize("is_rest", [False, True], ids=["file", "answer"])
def test_a_column_of_a_type_that_pyiceberg_does_not_know_is_told_to_loads_and_commits(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, *, is_rest: bool
) -> None:
    """Another engine adds it while the session runs. The client of a REST catalog reads the metadata in an answer."""
    table = filled_table(catalog, ID, rows=[[{"id": 1}]])
    session, waiting = Session(catalog), staged(catalog, {"id": 2})
    file = Path(table.refresh().metadata_location.removeprefix("file://"))
    variant = file.read_text().replace('"type":"long"', '"type":"variant"')

    def load(*_: object) -> object:
        return TableResponse.model_validate({"metadata": json.loads(variant), "config": {}})

    newer = file.with_name("newer.metadata.json")
    newer.write_text(variant)
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{newer}",))
    if is_rest:
        monkeypatch.setattr(type(catalog), "load_table", load)
    with pytest.raises(RetryableError) as of_loads:
        session.find(1)
    check_text("update_errors", "a column of an unknown type while Loads wait", str(of_loads.value))
    with pytest.raises(RetryableError) as of_commit:
        commit.commit_all_or_raise(catalog, [waiting])
    check_text("commit_errors", "a column of an unknown type", str(of_commit.value))


def test_rows_in_files_that_ask_for_views_of_texts_are_found_and_replaced(catalog: Catalog) -> None:
    """Other engines store Arrow's own schema in their files. Few of Arrow's functions take its views."""
    make_table(catalog)
    added = staged(catalog, row(1, "a"), row(2, "a"))
    assert not isinstance(added.files, FileList)
    [file] = added.files
    rows = pq.read_table(file.path.removeprefix("file://"))
    views = pa.schema(
        [each.with_type(pa.string_view()) if pa.types.is_string(each.type) else each for each in rows.schema]
    )
    pq.write_table(rows.cast(views), file.path.removeprefix("file://"))
    size = Path(file.path.removeprefix("file://")).stat().st_size
    commit.commit_all_or_raise(catalog, [replace(added, files=(msgspec.structs.replace(file, size=size),))])
    table = catalog.load_table(PATH)
    [found] = view(catalog)
    keys = SearchedKeys(keys_of_texts(pa.array(["[2]"]), UPDATES.parts, [LongType()]), UPDATES, ["id"])
    [loaded] = search(table.io, found, keys, with_documents=True)
    assert loaded.documents is not None
    assert loaded.documents.to_pylist() == [row(2, "a")["doc"]]
    land(catalog, {1: "b", 2: "b"})
    assert values_of(catalog) == {1: "b", 2: "b"}


def test_only_files_are_searched_that_may_have_a_loaded_key(catalog: Catalog) -> None:
    """A table of many files is not read for one key, and neither are its pending commits."""
    make_table(catalog)
    for number in range(0, 50, 10):
        land(catalog, {number: "a", number + 5: "a"})
    waiting = [staged(catalog, row(60, "a"), row(65, "a"))]
    session = Session(catalog, *waiting)
    assert ids(catalog, *session.find(22)) == [[20, 25]]
    assert ids(catalog, *session.find(0, 29, 45, 57)) == [[0, 5], [40, 45]]
    assert ids(catalog, *session.find(44, 61)) == [[40, 45], [60, 65]]
    assert session.find(28, 66) == ()
    assert session.find() == ()


def test_for_a_key_that_is_null_files_are_searched_that_have_nulls(catalog: Catalog) -> None:
    """Those of the table, and those of pending commits."""
    filled_table(catalog, NestedField(1, "id", LongType()))
    with_null = staged(catalog, {"id": 4}, {"id": None})
    pending = [with_null, staged(catalog, {"id": 4}, after=with_null)]
    null = KeyValues({1: LongType()}, pa.table({"1": pa.array([None], pa.int64())}))
    views = ViewFactory(ManifestCache())
    assert ids(catalog, *views.make(catalog.load_table(PATH), pending, keys=null).files) == [[4, None]]
    commit.commit_all_or_raise(catalog, pending)
    assert ids(catalog, *views.make(catalog.load_table(PATH), (), keys=null).files) == [[4, None]]


def test_bounds_are_remembered_from_the_first_search_on(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit or a compaction may have listed the files before, and they list them again."""
    make_table(catalog)
    session, parsed, of = Session(catalog), [0], ListedFile.of

    def counted(manifest: ManifestFile, entry: ManifestEntry) -> ListedFile:
        parsed[0] += 1
        return of(manifest, entry)

    monkeypatch.setattr(ListedFile, "of", counted)
    for number in range(3):
        land(catalog, {number: "a"})
    session.manifests.list_files(catalog.load_table(PATH))
    parsed[0] = 0
    assert ids(catalog, *session.find(1)) == [[1]]
    assert parsed[0] == 3
    session.manifests.list_files(catalog.load_table(PATH))
    assert ids(catalog, *session.find(2)) == [[2]]
    assert parsed[0] == 3


def answer_with(table: Table) -> Fault:
    """The catalog answers with a table as it was: from a replica that lags, or from a cache."""
    return lambda _: table


def documents(catalog: Catalog, session: Session, number: int) -> list[Any]:
    """The rows that a Load of this id finds."""
    keys = SearchedKeys(keys_of_texts(pa.array([f"[{number}]"]), UPDATES.parts, [LongType()]), UPDATES, ["id"])
    files, io = session.find(number), catalog.load_table(PATH).io
    found = [rows.documents for file in files for rows in search(io, file, keys, with_documents=True)]
    return [json.loads(text) for texts in found if texts is not None for text in texts.to_pylist()]


def test_a_load_does_not_miss_the_last_commit_if_the_catalog_answers_with_an_older_table(
    catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """The older row would be reduced with the new document, and the commit would delete the newer row by its key."""
    make_table(catalog)
    land(catalog, {1: "a"})
    session, older = Session(catalog), catalog.load_table(PATH)
    session.fences.note_committed(land(catalog, {1: "b"}))
    plant(catalog, [answer_with(older)], "load_table")
    assert documents(catalog, session, 1) == [{"id": 1, "value": "b"}]
    assert "attempt 1 to read its snapshot: RetryableError: the catalog answers with an older table" in caplog.text


def test_a_load_does_not_miss_what_another_writer_has_committed_before_the_session_opened(catalog: SqlCatalog) -> None:
    """For example before a split of its key range."""
    make_table(catalog)
    older, half = catalog.load_table(PATH), replace(WRITER, key_range="00000000-7fffffff")
    land(catalog, {1: "a"})
    session = Session(catalog)
    session.fences.note_opened(session.table_id, catalog.load_table(PATH).properties, half)
    plant(catalog, [answer_with(older)], "load_table")
    assert documents(catalog, session, 1) == [{"id": 1, "value": "a"}]


def test_a_catalog_that_goes_on_to_answer_with_an_older_table_fails_the_loads(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_views, "RETRY_FOR", 0.0)
    make_table(catalog)
    session, older = Session(catalog), catalog.load_table(PATH)
    landed = land(catalog, {1: "a"})
    session.fences.note_committed(landed)
    plant(catalog, [answer_with(older)], "load_table")
    with pytest.raises(RetryableError) as error:
        session.find(1)
    names = {fence.property_name(WRITER): "PROPERTY", landed.next: "VALUE"}
    check_text("update_errors", "an older table while Loads wait", str(error.value), names)


@pytest.fixture
def of_before(catalog: SqlCatalog) -> Table:
    """The table as it was before its last backfill."""
    make_table(catalog)
    older, table = catalog.load_table(PATH), catalog.load_table(PATH)
    begun = Generation(str(uuid.uuid4()), (str(table.metadata.table_uuid),), WRITER.materialization)
    with table.transaction() as transaction:
        transaction.set_properties(begun.encode())
    land(catalog, {1: "a"})
    return older


def test_an_answer_of_before_a_backfill_is_not_taken_for_another_table(catalog: SqlCatalog, of_before: Table) -> None:
    session = Session(catalog)
    plant(catalog, [answer_with(of_before)], "load_table")
    assert documents(catalog, session, 1) == [{"id": 1, "value": "a"}]


def test_a_catalog_that_goes_on_to_answer_with_a_table_of_before_a_backfill_fails_the_loads(
    catalog: SqlCatalog, of_before: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_views, "RETRY_FOR", 0.0)
    session = Session(catalog)
    plant(catalog, [answer_with(of_before)], "load_table")
    with pytest.raises(RetryableError) as error:
        session.find(1)
    check_text("update_errors", "a table of before a backfill while Loads wait", str(error.value))
