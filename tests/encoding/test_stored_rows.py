"""The keys of stored rows are read from all of a transaction's files."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from connector.encoding.lines.key_tables import KEY
from connector.encoding.search.stored_rows import read_stored_keys
from connector.model.state import DataFile
from encoding.searched_tables import IO, SearchedTable


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_keys_of_all_files_and_row_groups_have_the_types_of_today(tmp_path: Path, *, is_exact: bool) -> None:
    """Another engine has widened a column since the second file was staged."""
    table = SearchedTable(tmp_path, [LongType(), StringType()], is_exact)
    first, second = ['[1,"a"]', '[2,"b"]', '[3,"c"]'], ['[4,"d"]']
    paths = table.write(first, row_group_size=2), table.write(second, k0=pa.array([4], pa.int32()))
    files = [DataFile(path, 1, 1, (4,), ()) for path in paths]
    found, expected = read_stored_keys(IO, files, table.updates, {10: LongType(), 11: StringType()}), [*first, *second]
    assert found.drop_columns([KEY]) == table.keys(expected).drop_columns([KEY])
    if not is_exact:
        assert [json.loads(text) for text in found[KEY].to_pylist()] == [json.loads(text) for text in expected]
