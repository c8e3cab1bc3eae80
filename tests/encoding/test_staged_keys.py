"""The keys of stored rows are read from all of a transaction's files."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from connector.encoding.lines.keys_tables import KEY
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.encoding.search.staged_keys import read_staged_keys
from connector.model.state import ColumnStatistics, DataFile
from encoding.searched_tables import IO, SearchedTable


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_keys_of_all_files_and_row_groups_have_the_types_of_today(tmp_path: Path, *, is_exact: bool) -> None:
    """Another engine has widened a column since the second file was staged."""
    table = SearchedTable(tmp_path, [LongType(), StringType()], is_exact)
    first, second = ['[1,"a"]', '[2,"b"]', '[3,"c"]'], ['[4,"d"]']
    paths = table.write(first, row_group_size=2), table.write(second, k0=pa.array([4], pa.int32()))
    files = [DataFile(path, 1, 1, (4,), ()) for path in paths]
    found, expected = read_staged_keys(IO, files, table.updates, {10: LongType(), 11: StringType()}), [*first, *second]
    assert found.drop_columns([KEY]) == table.keys(expected).drop_columns([KEY])
    assert is_exact == (found[KEY].null_count == len(found))
    if not is_exact:
        assert [json.loads(text) for text in found[KEY].to_pylist()] == [json.loads(text) for text in expected]


COUNTED = (ColumnStatistics(10, 1, 3, 1, None, None), ColumnStatistics(11, 1, 3, 0, None, None))


@pytest.mark.parametrize("columns", [(), COUNTED])
def test_a_key_with_a_null_has_a_text_because_only_documents_tell_whether_a_row_has_it(
    tmp_path: Path, columns: tuple[ColumnStatistics, ...]
) -> None:
    table = SearchedTable(tmp_path, [LongType(), StringType()])
    path = table.write(['[1,"a"]', '[null,"a"]', '[2,"b"]'])
    file = DataFile(path, 3, 1, (4,), columns)
    stored = read_staged_keys(IO, [file], table.updates, {10: LongType(), 11: StringType()})
    assert [text and json.loads(text) for text in stored[KEY].to_pylist()] == [None, [None, "a"], None]
    searched = SearchedFile(path, Path(path[7:]).stat().st_size)
    found = search(IO, searched, SearchedKeys(stored, table.updates, table.key_names), with_documents=False)
    assert sorted(position for rows in found for position in rows.positions.tolist()) == [0, 1, 2]


def test_without_nulls_no_documents_are_read(tmp_path: Path) -> None:
    """They are most of a file."""
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"], flow_document=None)
    file = DataFile(path, 2, 1, (4,), (ColumnStatistics(10, 1, 2, 0, None, None),))
    assert read_staged_keys(IO, [file], table.updates, {10: LongType()}).drop_columns([KEY]).column(0).to_pylist() == [
        1,
        2,
    ]
