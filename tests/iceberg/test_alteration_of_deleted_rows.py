"""Rows that another engine has deleted from the files of a column that gets another type."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent

from connector.host.errors import UserError
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.tables.altered_tables import ID, QTY, QTY_AS_TEXT, ROWS, append, entries, filled_table, fit, rows


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
