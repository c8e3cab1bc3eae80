"""Manifests, manifest lists and located rows as they are in memory, not as Avro and Parquet have them: most of a small
commit's cost is these.

PyIceberg's own writers and readers decide what is in manifests, as ever. What Avro does is put them into bytes and
back: `test_simulation` runs schedules both ways and compares them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestEntry,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.typedef import Record

from connector.encoding.search.located_rows import LocatedRows
from connector.iceberg.commits import row_deletes
from connector.iceberg.metadata import manifests
from connector.iceberg.metadata.row_lineage import NEWEST_VERSION
from connector.model.binding import Updates
from connector.session import loads, replaced_rows
from connector.storage.file_io import RememberedFile, WriteFile, WrittenFile, write_small_file
from connector.storage.storage_errors import translate_errors
from simulation.store import Download
from support import private_connector


class _Records(bytes):
    """An object of the store that holds records as they are."""

    records: Sequence[Record]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        content = cls(len(records))
        content.records = records
        return content


class _LocatedRows(bytes):
    """An object of the store that holds located rows as they are."""

    located: LocatedRows

    @classmethod
    def of(cls, located: LocatedRows) -> Self:
        content = cls(located.rows.num_rows)
        content.located = located
        return content


def _write_located(
    io: FileIO, location: str, parts: Iterable[pa.Table], updates: Updates, write_file: WriteFile = write_small_file
) -> None:
    rows = pa.concat_tables(parts)
    write_file(io, location, _LocatedRows.of(LocatedRows(rows.drop_columns("key"), updates, lambda: rows["key"])))


def _read_located(io: FileIO, location: str) -> LocatedRows:
    with translate_errors(location), io.new_input(location).open() as stream:
        assert isinstance(stream, Download)
        assert isinstance(stream.content, _LocatedRows)
        return stream.content.located


def _write(file: WrittenFile) -> None:
    [content] = file.pieces  # the records, which are no bytes that could be joined
    with file._io.new_output(file.location).create(overwrite=True) as stream:
        stream.write(content)


def _copied(values: Iterable[Any]) -> list[Any]:
    # By exact type: isinstance is dear, for Record is a Protocol to it.
    return [_COPIES[kind](value) if (kind := type(value)) in _COPIES else value for value in values]


def _copied_record(record: Record) -> Record:
    copy = type(record)()
    # Avro reads the fields that an older version does not have as null.
    missing = _FIELDS.get(type(record), 0) - len(record._data)
    Record.__init__(copy, *_copied(record._data), *(None for _ in range(missing)))
    return copy


_FIELDS: Final[Mapping[type, int]] = {
    DataFile: len(DATA_FILE_TYPE[NEWEST_VERSION].fields),
    ManifestFile: len(MANIFEST_LIST_FILE_SCHEMAS[NEWEST_VERSION].fields),
}


_COPIES: Final[Mapping[type, Callable[[Any], Any]]] = {
    list: _copied,
    dict: dict.copy,
    **dict.fromkeys((Record, ManifestEntry, DataFile, ManifestFile, PartitionFieldSummary), _copied_record),
}


class RecordsOutput:
    """Stands for AvroOutputFile."""

    def __init__(self, output_file: OutputFile, *_: Any, **__: Any) -> None:
        self.output_file = output_file
        self._records: list[Record] = []

    def __class_getitem__(cls, _: object) -> type[Self]:
        return cls

    def __enter__(self) -> Self:
        return self

    def write_block(self, records: Sequence[Record]) -> None:
        self._records += _copied(records)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        with self.output_file.create(overwrite=True) as stream:
            stream.write(_Records.of(self._records))


class RecordsInput:
    """Stands for AvroFile."""

    def __init__(self, input_file: InputFile, *_: Any, **__: Any) -> None:
        self._input_file = input_file

    def __class_getitem__(cls, _: object) -> type[Self]:
        return cls

    def __enter__(self) -> Iterator[Record]:
        return iter(self)

    def __iter__(self) -> Iterator[Record]:
        with self._input_file.open() as stream:
            assert isinstance(stream, Download)
            assert isinstance(stream.content, _Records)
            return iter(_copied(stream.content.records))

    def __exit__(self, *_: object) -> None:
        pass


def keep_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifest, "AvroOutputFile", RecordsOutput)
    patch.setattr(manifest, "AvroFile", RecordsInput)
    patch.setattr(manifests, "AvroFileWriter", RecordsOutput)
    patch.setattr(manifests, "read_records", RecordsInput)
    patch.setattr(*private_connector.SEND_FILE, _write)
    patch.setattr(RememberedFile, "open", lambda file: Download(file.pieces[0]))
    for writing in (loads, replaced_rows):
        patch.setattr(writing, "write_located", _write_located)
    for reading in (row_deletes, replaced_rows):
        patch.setattr(reading, "read_located", _read_located)
    # The schemas that it derives are for Avro only.
    patch.setattr(manifest.ManifestWriter, "new_writer", lambda writer: RecordsOutput(writer._output_file))


def position_deletes_in(content: bytes) -> Sequence[tuple[str, int]]:
    """The data files and positions in a position delete file."""
    rows = pq.ParquetFile(BytesIO(content)).read()
    return list(zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True))
