"""Which commit has last changed a row: its file says it, or else the table's metadata."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from connector.encoding.live_rows.source_rows import RowLineage
from connector.encoding.parquet import file_columns
from connector.encoding.search.last_changes import PENDING, find_last_changes
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.search.rows_of_keys import RowsOfKeys
from encoding.searched_tables import IO, SearchedTable


def test_rows_have_the_numbers_of_their_own_column_else_that_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_columns, "_ROWS", 3)
    table = SearchedTable(tmp_path, [LongType()])
    keys = [f"[{number}]" for number in range(20)]
    own = pa.array([None if number % 4 == 0 else 100 + number for number in range(20)], pa.int64())
    compacted = table.write(keys, row_group_size=8, _last_updated_sequence_number=own)
    new, waiting = table.write(keys), table.write(keys)
    files = [
        SearchedFile(new, 1, lineage=RowLineage(None, 7)),
        SearchedFile(compacted, 1, row_groups=2, lineage=RowLineage(0, 9)),
        SearchedFile(compacted, 1, first_row_group=2, lineage=RowLineage(0, 9)),
        SearchedFile(waiting, 1),
    ]
    found = [(3, 1), (1, 4), (0, 19), (2, 17), (1, 15), (1, 2), (2, 16), (1, 2), (3, 0), (1, 7)]
    places, positions = np.array(found, np.uint8).T
    rows = RowsOfKeys(places, np.zeros(len(found), np.uint8), positions, None)
    expected = [PENDING, 9, 7, 117, 115, 102, 9, 102, PENDING, 107]
    assert find_last_changes(IO, files, rows).tolist() == expected
