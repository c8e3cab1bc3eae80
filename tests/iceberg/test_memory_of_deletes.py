"""The memory of deletes: an attempt holds each position about once, and nothing of them is kept afterwards."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from connector.encoding.live_rows.deletion_vectors import write_deletion_vectors
from connector.iceberg.commits.delete_files import DeleteFiles
from connector.iceberg.commits.row_deletes import DeletesOfCommit
from connector.iceberg.metadata.listed_files import ListedFile, PositionDeletes
from connector.iceberg.metadata.partitions import Partition
from support.bindings import PATH
from support.rows.updated_rows import make_table
from support.tables.local_tables import local_catalog, upgrade_to_version_3

FILES, ROWS = 20, 50_000  # deleted rows of each data file
SIZE = FILES * ROWS * 8  # bytes of all positions
NOWHERE = Partition.of(0, Record())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = local_catalog(tmp_path)
    make_table(catalog)
    upgrade_to_version_3(catalog, PATH)
    return catalog.load_table(PATH)


@pytest.fixture
def rows(table: Table) -> DeletesOfCommit:
    """Each data file has a vector, and one more row of it is deleted."""
    older = {f"f{number}": np.arange(ROWS) for number in range(FILES)}
    written = write_deletion_vectors(table.io, f"{table.location()}/data/older.puffin", older)
    content = DataFileContent.POSITION_DELETES
    vectors = [
        ListedFile(each.path, "m", content, FileFormat.PUFFIN, ROWS, 1, 0, NOWHERE, 2, 2, None, each.vector)
        for each in written
    ]
    parquet = FileFormat.PARQUET
    live = {
        path: ListedFile(path, "m", DataFileContent.DATA, parquet, 2 * ROWS, 1, 1, NOWHERE, 1, 1, None)
        for path in older
    }
    new = {path: np.array([ROWS + 7]) for path in older}
    return DeletesOfCommit(new, dict.fromkeys(older, NOWHERE), live, PositionDeletes(vectors))


def test_the_positions_of_an_attempt_are_held_about_once(table: Table, rows: DeletesOfCommit) -> None:
    files = DeleteFiles()
    tracemalloc.start()
    try:
        changes = files.write(table, "p", rows)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(each.deletes.rows for each in changes.added) == FILES * (ROWS + 1)
    assert kept < SIZE / 4, "it lives as long as the commits are pending"
    assert peak < 1.7 * SIZE
    assert files.write(table, "p", rows).added == changes.added, "the files of the earlier attempt"
