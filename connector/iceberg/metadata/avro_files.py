"""Reads and writes Avro files.

Their writers, readers and Avro schemas are made once. PyIceberg makes them anew for every file. This took a third of a
commit's processor time, and nearly all of the time to read a small manifest.

A file that is damaged or cut short is an error. PyIceberg takes the end of such a file for the end of its records: the
next commit would drop the data files that the rest lists. Its compiled decoder also reads beyond the end of its input,
which may end the process.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Self

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.decoder import StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from connector.encoding.values.pyiceberg_patches import apply_patches

AVRO_COMPRESSION: Final[AvroCompressionCodec] = "deflate"
AVRO_SCHEMA_KEY: Final = "avro.schema"
BLOCK_SIZE: Final = 64 << 10  # bytes of encoded records; about as in Avro's Java library

_HEADER_WRITER: Final = construct_writer(META_SCHEMA)
_HEADER_READER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})

apply_patches()


@dataclass(frozen=True)
class AvroSchema:
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


class AvroFileWriter(AvroOutputFile[Any]):
    """Writes the records of a file, in one schema.

    A block holds the records of several calls, since those that are compressed together take about half as many bytes.
    Those of one call are never divided.
    """

    def __init__(self, file: OutputFile, schema: AvroSchema, metadata: dict[str, str]) -> None:
        # An empty schema, since the writer that PyIceberg makes from it is replaced.
        super().__init__(file, Schema(), schema.name, metadata=metadata)
        self.file_schema, self.writer = schema.schema, schema.writer
        self._avro_schema = schema.avro_schema
        self._block, self._count = BytesIO(), 0

    def write_block(self, objects: list[Any]) -> None:
        """Add records to the block, which is written when it is large enough, or with the end of the file."""
        encoder = BinaryEncoder(self._block)
        for record in objects:
            self.writer.write(encoder, record)
        self._count += len(objects)
        if self._block.tell() >= BLOCK_SIZE:
            self._end_block()

    def __exit__(self, *raised: Any) -> None:
        if self._count:
            self._end_block()
        super().__exit__(*raised)

    def _end_block(self) -> None:
        content = zlib.compress(self._block.getvalue(), wbits=-zlib.MAX_WBITS)
        self.encoder.write_int(self._count)
        self.encoder.write_bytes(content)
        self.encoder.write(self.sync_bytes)
        self._block, self._count = BytesIO(), 0

    def _write_header(self) -> None:
        metadata = {**self.metadata, AVRO_SCHEMA_KEY: self._avro_schema, AVRO_CODEC_KEY: AVRO_COMPRESSION}
        _HEADER_WRITER.write(self.encoder, AvroFileHeader(MAGIC, metadata, self.sync_bytes))


def read_records(file: InputFile, find_reader: Callable[[str], Reader], size: int = 0) -> Iterator[Any]:
    """Yield the records of a file, which is read in one piece. `size` is in bytes, as the file's manifest list says it.

    Raises InvalidMetadataError if the file is damaged, or shorter than `size`. `find_reader` returns the reader for an
    Avro schema: other engines write other schemas.
    """
    with file.open() as stream:
        content = stream.read()
    try:
        if len(content) < size:
            raise EOFError(f"it has {len(content)} bytes instead of {size}")
        yield from _decode(content, find_reader)
    except Exception as error:  # the decoders raise whatever their input leads to
        raise InvalidMetadataError(f"{file.location} is damaged: {type(error).__name__}: {error}") from error


def _decode(content: bytes, find_reader: Callable[[str], Reader]) -> Iterator[Any]:
    file = StreamingBinaryDecoder(content)  # which, unlike the compiled one, notices the end of its input
    header = _HEADER_READER.read(file)
    reader, codec = find_reader(header.meta[AVRO_SCHEMA_KEY]), header.compression_codec()
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
