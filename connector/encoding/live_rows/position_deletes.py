"""Position delete files: which rows of data files are deleted, as Iceberg keeps it."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.types import LongType, StringType

from connector.encoding.parquet.damaged_files import explain_damage
from connector.encoding.parquet.data_files import open_new_file
from connector.encoding.parquet.statistics import split_offsets
from connector.encoding.values.arrays import Positions
from connector.encoding.values.column_types import FIELD_ID, NO_ID, column_id
from connector.host.errors import UnreadableFileError
from connector.model.state import ColumnStatistics, DataFile
from connector.storage.file_io import WriteFile, write_small_file
from connector.storage.storage_errors import translate_errors

# The ids are Iceberg's. Readers find the columns by them.
PATH_ID: Final = 2147483546
POSITION_ID: Final = 2147483545
_IDS: Final = {"file_path": PATH_ID, "pos": POSITION_ID}

_UNREADABLE: Final = (
    "{path} is in the table's metadata as a position delete file, but cannot be read ({answer}). Restore it, or remove "
    "it from the table."
)
_PATHS: Final = pa.dictionary(pa.int32(), pa.string())
_COLUMNS: Final = (
    pa.field("file_path", _PATHS, nullable=False, metadata={FIELD_ID: str(PATH_ID)}),
    pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID)}),
)


def join_positions(parts: Sequence[Positions]) -> Positions:
    """Return the positions of all parts, in order and without duplicates. There is one part at least.

    NumPy's own function makes a hash table, which takes a hundred times as long. The parts are nearly always in order
    themselves: a stable sort merges them.
    """
    positions = np.sort(np.concatenate(parts), kind="stable")
    distinct: Positions = positions[np.append(True, positions[1:] != positions[:-1])[: len(positions)]]
    return distinct


def write_position_deletes(
    io: FileIO, location: str, paths: pa.Array, positions: pa.Array, write_file: WriteFile = write_small_file
) -> DataFile:
    """Write a file that deletes these rows, each of them once. It is durable when this returns, unless `write_file`
    writes small files later.

    The paths must be spelled exactly as the manifests have them. Otherwise the file deletes nothing.
    """
    rows = _sort(paths, positions)
    assert rows.num_rows, "a delete file has rows"
    with translate_errors(location), open_new_file(io, location, write_file) as stream:
        with pq.ParquetWriter(
            stream,
            rows.schema,
            compression="zstd",
            use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
            store_schema=False,
        ) as writer:
            writer.write_table(rows)
        size = int(stream.tell())
        metadata = writer.writer.metadata
    return DataFile(location, rows.num_rows, size, split_offsets(metadata), _statistics(rows, metadata))


def read_position_deletes(io: FileIO, path: str) -> pa.Table:
    """Return the rows that a file deletes, in its order: `file_path` (a dictionary of strings) and `pos` (int64)."""
    with translate_errors(path), io.new_input(path).open() as stream, explain_damage(path, _UNREADABLE):
        rows = _read(stream.read(), path)
    if rows["file_path"].null_count or rows["pos"].null_count:
        raise UnreadableFileError(
            path,
            f"{path} is in the table's metadata as a position delete file, but has a row without a path or a position. "
            "Restore it, or remove it from the table.",
        )
    return rows


def _read(content: bytes, path: str) -> pa.Table:
    schema = pq.read_schema(pa.BufferReader(content))
    names = {name: _name(schema, name, number, path) for name, number in _IDS.items()}
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[names["file_path"]])
    rows = file.read(columns=[*names.values()])
    return rows.rename_columns([*names]).cast(pa.schema({"file_path": _PATHS, "pos": pa.int64()})).unify_dictionaries()


def group_by_file(rows: pa.Table) -> Iterator[tuple[str, Positions]]:
    """Yield the positions in each data file, in the order of the rows. The rows have `file_path` (a dictionary) and
    `pos`."""
    if not rows.num_rows:
        return
    paths = rows["file_path"].unify_dictionaries().combine_chunks()
    indices, positions = paths.indices.to_numpy(), rows["pos"].to_numpy()
    order = np.argsort(indices, kind="stable")
    ends = np.cumsum(np.bincount(indices, minlength=len(paths.dictionary)))
    for path, file_positions in zip(paths.dictionary.to_pylist(), np.split(positions[order], ends[:-1]), strict=True):
        if len(file_positions):
            yield path, file_positions


def _name(schema: pa.Schema, name: str, number: int, path: str) -> str:
    """Return the file's name of one of the columns. Some writers leave the ids out, but use Iceberg's names."""
    for field in schema:
        if column_id(field) == number or (column_id(field) == NO_ID and field.name == name):
            return str(field.name)
    raise UnreadableFileError(
        path,
        f"{path} is in the table's metadata as a position delete file, but it has no column {name}. Have the table's "
        "delete files rewritten (in Spark: CALL system.rewrite_position_delete_files).",
    )


def _sort(paths: pa.Array, positions: pa.Array) -> pa.Table:
    """Return the rows by path and position, as Iceberg demands, without duplicates."""
    encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    # Bytes of UTF-8 have the order of their characters, so the order of the paths is Iceberg's.
    indices = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy()[encoded.indices.to_numpy()]
    numbers = positions.to_numpy()
    order = np.lexsort((numbers, indices))
    indices, numbers = indices[order], numbers[order]
    is_first = np.append(True, (indices[1:] != indices[:-1]) | (numbers[1:] != numbers[:-1]))[: len(order)]
    rows = pa.array(order[is_first])
    return pa.table([encoded.take(rows), positions.take(rows)], schema=pa.schema(_COLUMNS))


def _statistics(rows: pa.Table, metadata: pq.FileMetaData) -> tuple[ColumnStatistics, ...]:
    """Return statistics with whole bounds. Where both bounds of the path are equal, readers know that the file is
    about one data file; a truncated bound would hide that."""
    paths, positions = rows["file_path"], rows["pos"]
    path_bounds = [to_bytes(StringType(), paths[index].as_py()) for index in (0, -1)]
    position_bounds = [to_bytes(LongType(), number.as_py()) for number in pc.min_max(positions).values()]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    sizes = [sum(group.column(index).total_compressed_size for group in groups) for index in range(len(_COLUMNS))]
    return (
        ColumnStatistics(PATH_ID, sizes[0], rows.num_rows, 0, path_bounds[0], path_bounds[1]),
        ColumnStatistics(POSITION_ID, sizes[1], rows.num_rows, 0, position_bounds[0], position_bounds[1]),
    )
