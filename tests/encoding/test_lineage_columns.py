"""Rows that are written to other files keep their ids, and the numbers of the commits that changed them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import IcebergType, LongType, StringType

from connector.encoding.live_rows import source_rows
from connector.encoding.live_rows.lineage_columns import fill_lineage
from connector.encoding.live_rows.position_deletes import write_position_deletes
from connector.encoding.live_rows.source_rows import RowLineage, SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting import copied_row_groups
from connector.encoding.rewriting.converted_files import rewrite_converted
from connector.encoding.rewriting.file_groups import FileGroup
from connector.encoding.rewriting.group_compaction import compact_group
from connector.model.binding import Arrangement, SortField
from connector.model.properties import Properties

IO = PyArrowFileIO()
ROW_ID, CHANGED = 2147483540, 2147483539  # Iceberg's table of reserved field ids
ROWS = 10


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "_BATCH_SIZE", 60)
    monkeypatch.setattr(copied_row_groups, "LEAST_SIZE", 0)


@dataclass(frozen=True)
class Source:
    """Ten rows in two row groups. `row_ids` and `changed` are the file's columns, if it has them."""

    first_id: int
    lineage: RowLineage | None
    row_ids: Sequence[int | None] = ()
    changed: Sequence[int | None] = ()
    deleted: Sequence[int] = ()
    is_plain: bool = True  # its texts can be copied

    def write(self, directory: Path) -> SourceFile:
        ids = range(self.first_id, self.first_id + ROWS)
        columns: list[tuple[pa.Field, Sequence[Any]]] = [
            (_field("id", pa.int64(), 1), ids),
            *([(_field("_row_id", pa.int64(), ROW_ID), self.row_ids)] if self.row_ids else []),
            (_field("text", pa.string(), 2), [f"text {number}" for number in ids]),
            *([(_field("changed", pa.int64(), CHANGED), self.changed)] if self.changed else []),
        ]
        path = directory / f"{self.first_id}.parquet"
        schema = pa.schema([field for field, _ in columns])
        table = pa.table([pa.array(values, field.type) for field, values in columns], schema=schema)
        pq.write_table(table, path, row_group_size=6, compression="zstd", use_dictionary=not self.is_plain)
        return SourceFile(
            f"file://{path}", path.stat().st_size, self._delete(directory, f"file://{path}"), self.lineage
        )

    def _delete(self, directory: Path, path: str) -> tuple[str, ...]:
        if not self.deleted:
            return ()
        location = f"file://{directory}/{self.first_id}-deletes.parquet"
        paths = pa.array([path] * len(self.deleted))
        return (write_position_deletes(IO, location, paths, pa.array(self.deleted, pa.int64())).path,)

    @property
    def expected(self) -> dict[int, tuple[int | None, int | None]]:
        """By the value of `id`: the row's id, and the number of its last change."""
        assert self.lineage
        assert self.lineage.first_row_id is not None
        return {
            self.first_id + position: (
                _first(self.row_ids, position, self.lineage.first_row_id + position),
                _first(self.changed, position, self.lineage.sequence_number),
            )
            for position in range(ROWS)
            if position not in self.deleted
        }


def _field(name: str, arrow_type: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(number)})


def _first(values: Sequence[int | None], position: int, inherited: int) -> int:
    return (values[position] if values else None) or inherited


APPENDED = Source(0, RowLineage(100, 1))
DECODED = Source(10, RowLineage(110, 2), deleted=(0, 7), is_plain=False)
COMPACTED = Source(20, RowLineage(900, 9), row_ids=[*range(39, 29, -1)], changed=[3, 4] * 5)
UPDATED = Source(30, RowLineage(200, 5), row_ids=[50, None] * 5, changed=[None, 6] * 5, deleted=(4,))
ALL = [APPENDED, DECODED, COMPACTED, UPDATED]
COLUMNS: list[tuple[int, str, IcebergType]] = [(1, "id", LongType()), (2, "text", StringType())]
BY_TEXT = SortField(2, "identity", is_descending=True, nulls_first=True)


def compact(directory: Path, sources: Sequence[Source], *order: SortField) -> list[pa.Table]:
    for name in ("data", "metadata"):
        (directory / name).mkdir()
    columns = tuple(TargetColumn(number, name, type_, False, number, type_) for number, name, type_ in COLUMNS)
    destination = Destination(f"file://{directory}", Properties(), "compact-1")
    target = TargetFiles(columns, destination, Arrangement(sort=order))
    group = FileGroup(tuple(source.write(directory) for source in sources))
    return [pq.read_table(file.path[7:]) for file in compact_group(IO, target, group).files]


def test_a_column_of_the_table_keeps_its_nulls() -> None:
    names = [_field("qty", pa.int64(), 1), _field("_row_id", pa.int64(), ROW_ID), _field("no", pa.int64(), CHANGED)]
    columns = [pa.array(values, pa.int64()) for values in ([None, 5], [None, 77], [None, 6])]
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(names))
    filled = fill_lineage(rows, RowLineage(100, 9), np.array([3, 4]))
    assert filled.to_pydict() == {"qty": [None, 5], "_row_id": [103, 77], "no": [9, 6]}


def lineage_of(tables: Sequence[pa.Table]) -> dict[int, tuple[int, int]]:
    names = ["id", "_row_id", "_last_updated_sequence_number"]
    rows = [row for table in tables for row in zip(*(table[name].to_pylist() for name in names), strict=True)]
    return {number: (row_id, changed) for number, row_id, changed in rows}


@pytest.mark.parametrize("order", [(), (BY_TEXT,)], ids=["in the order of the sources", "sorted"])
def test_new_files_have_what_the_sources_say_and_else_what_these_inherit(
    tmp_path: Path, order: tuple[SortField, ...]
) -> None:
    [table] = compact(tmp_path, ALL, *order)
    assert lineage_of([table]) == {number: values for source in ALL for number, values in source.expected.items()}
    by_name = {field.name: (field.metadata[b"PARQUET:field_id"], field.type, field.nullable) for field in table.schema}
    assert by_name["_row_id"] == (b"2147483540", pa.int64(), True)
    assert by_name["_last_updated_sequence_number"] == (b"2147483539", pa.int64(), True)


def test_rows_without_ids_get_the_numbers_of_their_last_changes(tmp_path: Path) -> None:
    """Of format version 2: a Load has to know which of several rows of a key is the newest."""
    sources = [Source(0, RowLineage(None, 4)), Source(10, RowLineage(None, 9), changed=[3, None] * 5, deleted=(0, 2))]
    [table] = compact(tmp_path, sources)
    assert table.column_names == ["id", "text", "_last_updated_sequence_number"]
    assert table["_last_updated_sequence_number"].to_pylist() == [*[4] * 10, 9, *[9, 3] * 3, 9]


@pytest.mark.parametrize("order", [(), (BY_TEXT,)], ids=["in the order of the sources", "sorted"])
def test_sources_with_and_without_ids_become_different_files(tmp_path: Path, order: tuple[SortField, ...]) -> None:
    without, with_ids = compact(tmp_path, [Source(0, None), DECODED], *order)
    assert without.column_names == ["id", "text"]
    assert lineage_of([with_ids]) == DECODED.expected


@pytest.mark.parametrize("source", ALL, ids=["appended", "with deletes", "compacted", "updated"])
def test_converted_files_have_the_same(tmp_path: Path, source: Source) -> None:
    kept = TargetColumn(1, "id", LongType(), False, 1, LongType())
    converted = TargetColumn(3, "number", StringType(), False, 1, LongType())
    [table] = rewrite(tmp_path, source, kept, converted)
    assert lineage_of([table]) == source.expected
    assert table["number"].to_pylist() == [str(number) for number in table["id"].to_pylist()]


def rewrite(directory: Path, source: Source, *columns: TargetColumn) -> list[pa.Table]:
    target = TargetFiles(columns, Destination(f"file://{directory}", Properties(), "convert-1"))
    files = rewrite_converted(IO, target, source.write(directory))
    assert files is not None
    return [pq.read_table(file.path[7:]) for file in files]


def test_a_file_that_waits_for_its_commit_keeps_the_ids_of_updated_rows_when_it_is_converted(tmp_path: Path) -> None:
    source = replace(UPDATED, lineage=None, changed=())
    kept = TargetColumn(1, "id", LongType(), False, 1, LongType())
    converted = TargetColumn(3, "number", StringType(), False, 1, LongType())
    [table] = rewrite(tmp_path, source, kept, converted)
    assert table.column_names == ["id", "number", "_row_id"]
    assert table["_row_id"].to_pylist() == [50, None, 50, None, None, 50, None, 50, None]
