"""Reads and writes manifests and manifest lists as Avro files.

Their writers, readers and Avro schemas are made once. PyIceberg makes them anew for every file. This took a third of a
commit's processor time, and nearly all of the time to read a small manifest. A file that was just written keeps its
content in memory: to read it takes no request.

A file that is damaged or cut short is an error. PyIceberg takes the end of such a file for the end of its records: the
next commit would drop the data files that the rest lists. Its compiled decoder also reads beyond the end of its input,
which may end the process.
"""

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from types import TracebackType
from typing import Any, Final, Self

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader
from pyiceberg.avro.writer import Writer
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from connector.iceberg.metadata.partitions import name_in_avro
from connector.iceberg.metadata.row_lineage import NEWEST_VERSION, assign_row_ids, number_rows

AVRO_COMPRESSION: Final[AvroCompressionCodec] = "deflate"
AVRO_SCHEMA_KEY: Final = "avro.schema"
SCHEMAS: Final = 64  # one serves all unpartitioned tables, and one the manifest lists of each engine

_EQUALITY_IDS: Final = ListType(136, IntegerType(), element_required=True)
_DOUBLE: Final = struct.Struct("<d")
_HEADER_WRITER: Final = construct_writer(META_SCHEMA)
_HEADER_READER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


def _read_double(_: DoubleReader, decoder: BinaryDecoder) -> float:
    (value,) = _DOUBLE.unpack(decoder.read(_DOUBLE.size))
    return float(value)


# PyIceberg's compiled decoder rounds doubles to floats. A manifest that is written again would get other partitions.
DoubleReader.read = _read_double  # type: ignore[assignment, method-assign]


def read_manifest_list(file: InputFile) -> Iterator[ManifestFile]:
    """Read the manifests that a list names, in the form of the newest version."""
    yield from _ManifestListInput(file)


def read_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read a manifest's live entries. Each data file has the id of its first row, if the manifest list has ids."""
    live = [entry for entry in read_all_entries(io, manifest) if entry.status is not ManifestEntryStatus.DELETED]
    if manifest.content is ManifestContent.DATA:
        number_rows(live, manifest)
    return live


def read_all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read a manifest's entries, also those of files that its snapshot has deleted. They have no row ids."""
    entries = _ManifestInput(io.new_input(manifest.manifest_path), manifest.manifest_length)
    return [_inherit(entry, manifest) for entry in entries]


class ManifestWriter(ManifestWriterV2):
    """PyIceberg's manifest writer, with the Avro writer that all manifests of a partition type and version share.

    After an error in its context it is not closed. To close it would upload half a manifest, or replace the error by
    one that says that the manifest is empty.
    """

    def __init__(self, *args: Any, version: TableVersion = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        self._written_version = version

    @property
    def version(self) -> TableVersion:
        """The format version of the table."""
        return self._written_version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Return the Avro writer of a new manifest."""
        form = _of_manifests(_partition_type(self._spec, self._schema), self.version)
        return _Output(self._output_file, form, self._meta)

    def to_manifest_file(self) -> ManifestFile:
        """Return the manifest as a list of any version names it. Its rows have no ids yet."""
        manifest = super().to_manifest_file()
        return ManifestFile(*(manifest[position] for position in range(len(manifest))), None)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            super().__exit__(exc_type, exc_value, traceback)


class DeleteManifestWriter(ManifestWriter):
    """Writes a manifest that lists delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        form = _of_delete_manifests(_partition_type(self._spec, self._schema), self.version)
        return _Output(self._output_file, form, self._meta)

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class ManifestListWriter(ManifestListWriterV2):
    """PyIceberg's manifest list writer, with the Avro writer that all of a version share. Not closed after an error.

    With a `next_row_id`, the list is of version 3, and gives ids to the rows that have none.
    """

    def __init__(self, *args: Any, next_row_id: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.next_row_id = next_row_id
        if next_row_id is not None:
            self._meta = {**self._meta, "format-version": "3", "first-row-id": str(next_row_id)}

    def __enter__(self) -> Self:
        form = _of_manifest_lists(2 if self.next_row_id is None else 3)
        self._writer = _Output(self._output_file, form, self._meta)
        self._writer.__enter__()
        return self

    def add_manifests(self, manifest_files: list[ManifestFile]) -> Self:
        """Write all manifests of a snapshot."""
        if self.next_row_id is not None:
            self.next_row_id = assign_row_ids(manifest_files, self.next_row_id)
        super().add_manifests(manifest_files)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            super().__exit__(exc_type, exc_value, traceback)


def copy_manifest(manifest: ManifestFile) -> ManifestFile:
    """Return a copy for a manifest list. Its writer sets sequence numbers and row ids in the objects that it gets."""
    return ManifestFile(*(manifest[index] for index in range(len(manifest))))


@dataclass(frozen=True)
class _Form:
    """What all files of one schema share."""

    schema: Schema
    name: str
    writer: Writer
    avro_schema: str

    @classmethod
    def of(cls, schema: Schema, name: str) -> Self:
        """Make the writer and the Avro schema of a schema with this name."""
        avro_schema = json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))
        return cls(schema, name, construct_writer(schema), avro_schema)


def _partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Return the type of a spec's partitions, in which every value may be null, as Iceberg demands.

    PyIceberg would require the values of required columns. But `void` makes them null, and columns may change.
    """
    fields = spec.partition_type(schema).fields
    return StructType(*(NestedField(each.field_id, name_in_avro(each.name), each.field_type) for each in fields))


@lru_cache(SCHEMAS)
def _of_manifests(partition_type: StructType, version: TableVersion) -> _Form:
    data_file = data_file_with_partition(partition_type, version)
    return _Form.of(manifest_entry_schema_with_data_file(version, data_file), "manifest_entry")


@lru_cache(SCHEMAS)
def _of_delete_manifests(partition_type: StructType, version: TableVersion) -> _Form:
    """Return the form of manifests that may list equality deletes of other engines. PyIceberg would write the ids of
    their columns as longs, which Java does not read."""
    data_file = data_file_with_partition(partition_type, version)
    fields = [
        field.model_copy(update={"field_type": _EQUALITY_IDS}) if field.name == "equality_ids" else field
        for field in data_file.fields
    ]
    return _Form.of(manifest_entry_schema_with_data_file(version, StructType(*fields)), "manifest_entry")


@cache
def _of_manifest_lists(version: TableVersion) -> _Form:
    return _Form.of(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")


class _Output(AvroOutputFile[Any]):
    def __init__(self, file: OutputFile, form: _Form, metadata: dict[str, str]) -> None:
        # An empty schema, since the writer that PyIceberg makes from it is replaced.
        super().__init__(file, Schema(), form.name, metadata=metadata)
        self.file_schema, self.writer = form.schema, form.writer
        self._avro_schema = form.avro_schema

    def _write_header(self) -> None:
        metadata = {**self.metadata, AVRO_SCHEMA_KEY: self._avro_schema, AVRO_CODEC_KEY: AVRO_COMPRESSION}
        _HEADER_WRITER.write(self.encoder, AvroFileHeader(MAGIC, metadata, self.sync_bytes))


class _Input(ABC):
    """The records of a file, which is read in one piece.

    Iterating raises InvalidMetadataError if the file is damaged, or shorter than `size`.
    """

    def __init__(self, file: InputFile, size: int = 0) -> None:
        """`size` is in bytes, as the file's manifest list says it."""
        self._file, self._size = file, size

    @staticmethod
    @abstractmethod
    def find_reader(avro_schema: str) -> Reader:
        """Return the reader of files with this schema; other engines write other schemas."""

    def __iter__(self) -> Iterator[Any]:
        with self._file.open() as stream:
            content = stream.read()
        try:
            if len(content) < self._size:
                raise EOFError(f"it has {len(content)} bytes instead of {self._size}")
            yield from self._decode(content)
        except Exception as error:  # the decoders raise whatever their input leads to
            raise InvalidMetadataError(f"{self._file.location} is damaged: {type(error).__name__}: {error}") from error

    def _decode(self, content: bytes) -> Iterator[Any]:
        file = StreamingBinaryDecoder(content)  # which, unlike the compiled one, notices the end of its input
        header = _HEADER_READER.read(file)
        reader, codec = self.find_reader(header.meta[AVRO_SCHEMA_KEY]), header.compression_codec()
        while file.tell() < len(content):
            count, block = file.read_int(), file.read_bytes()
            if file.read(SYNC_SIZE) != header.sync:
                raise ValueError("a block does not end where it should")
            records = codec.decompress(block) if codec else block
            decoder = new_decoder(records)
            for _ in range(count):
                yield reader.read(decoder)
            if decoder.tell() != len(records):
                raise ValueError("a block has other records than it says")


class _ManifestInput(_Input):
    @staticmethod
    @lru_cache(SCHEMAS)
    def find_reader(avro_schema: str) -> Reader:
        return resolve_reader(
            AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
            MANIFEST_ENTRY_SCHEMAS[NEWEST_VERSION],
            {-1: ManifestEntry, 2: DataFile},
            {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        )


class _ManifestListInput(_Input):
    @staticmethod
    @lru_cache(SCHEMAS)
    def find_reader(avro_schema: str) -> Reader:
        return resolve_reader(
            AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
            MANIFEST_LIST_FILE_SCHEMAS[NEWEST_VERSION],
            {-1: ManifestFile, 508: PartitionFieldSummary},
            {517: ManifestContent},
        )


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """Fill in what an entry has from its manifest."""
    # Files of version 1 have no numbers: they are as old as the table.
    if manifest.sequence_number == 0 or entry.status is ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry
