"""Rows that another engine has deleted from the files of a column that gets another type."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.types import StringType

from connector.host.errors import UserError
from connector.iceberg.commits import delete_files
from connector.iceberg.metadata.listed_files import ManifestCache
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.rows.updated_rows import land, make_table
from support.tables.altered_tables import ID, QTY, QTY_AS_TEXT, ROWS, append, entries, filled_table, fit, rows, wanted
from support.tables.local_tables import upgrade_to_version_3
from support.tables.vectors import check_totals


def data_files(catalog: Catalog) -> dict[str, int | None]:
    """Paths, and the sequence numbers of the rows in them."""
    data = [entry for entry in entries(catalog) if entry.data_file.content is DataFileContent.DATA]
    return {entry.data_file.file_path: entry.sequence_number for entry in data}


def test_rows_that_were_deleted_by_their_place_stay_deleted(catalog: Catalog) -> None:
    filled_table(
        catalog, ID, QTY, rows=[[{"id": 1, "qty": 1}], [{"id": number, "qty": number} for number in (2, 3, 4)]]
    )
    [one, three] = sorted(data_files(catalog), key=lambda path: data_files(catalog)[path] or 0)
    for file, position in ((three, 2), (three, 0), (three, 2), (one, 0)):
        delete_position(catalog.load_table(PATH), file, position)
    append(catalog, {"id": 5, "qty": 5})
    assert [row["id"] for row in rows(catalog)] == [3, 5]
    fit(catalog, *QTY_AS_TEXT)
    assert rows(catalog) == [{"id": 3, "qty": "3"}, {"id": 5, "qty": "5"}]
    assert len(data_files(catalog)) == 2


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_go_with_the_only_data_file_that_they_name(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_files, "FILE_SCOPED_UP_TO", 1)
    make_table(catalog)
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {3: "a", 4: "a"})
    land(catalog, {5: "a", 6: "a"})
    land(catalog, {1: "b", 3: "b"})
    [shared] = list_deletes(catalog)
    if version == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, {5: "c"})
    assert len(list_deletes(catalog)) == (2 if version == 2 else 3)
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    assert [row["id"] for row in rows(catalog)] == ["1", "2", "3", "4", "5", "6"]
    assert list_deletes(catalog) == ([shared] if version == 2 else [])
    check_totals(catalog, PATH)


def list_deletes(catalog: Catalog) -> list[str]:
    files = ManifestCache().list_files(catalog.load_table(PATH))
    return [file.path for file in files if not file.is_data]


def test_rows_that_were_deleted_by_the_value_of_another_column_can_still_be_told(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])
    delete_equal(catalog.load_table(PATH), 1)
    append(catalog, {"id": 1, "qty": 11})
    before = data_files(catalog)
    fit(catalog, *QTY_AS_TEXT)
    after = data_files(catalog)
    assert sorted(after.values(), key=str) == sorted(before.values(), key=str)
    assert not after.keys() & before.keys()


def test_rows_that_were_deleted_by_the_columns_own_value_are_not_guessed_at(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])
    delete_equal(catalog.load_table(PATH), 10, "qty")
    location = catalog.load_table(PATH).metadata_location
    with pytest.raises(UserError, match=r"deleted rows by their value of 'qty'.*rewrite_data_files"):
        fit(catalog, *QTY_AS_TEXT)
    assert catalog.load_table(PATH).metadata_location == location
