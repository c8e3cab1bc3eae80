"""What a table's properties ask of new files: where they go, how large they become, and how they are compressed."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider

from connector.model.properties import Properties, read_number

PROVIDER: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
TARGET_SIZE: Final = "write.target-file-size-bytes"
DEFAULT_SIZE: Final = 512 << 20  # bytes, as in Iceberg; new tables of the connector have a property with less

# Iceberg's names of codecs, and PyArrow's.
CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}
WITH_LEVELS: Final = ("zstd", "gzip", "brotli")  # a level has no meaning for others, in Iceberg's own writers too


@dataclass(frozen=True)
class FileOptions:
    """How large data files become, and how they are compressed."""

    target_size: int  # bytes
    codec: str
    level: int | None

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> "FileOptions":
        """Return the options that a table's properties ask for. Raises ValueError if a property is invalid."""
        codec = properties.get(CODEC, "zstd").lower()
        if codec not in CODECS:
            raise ValueError(f"{CODEC} is {codec!r}; it may be {', '.join(CODECS)}")
        return cls(
            target_size=read_number(properties, TARGET_SIZE, DEFAULT_SIZE, least=1),
            codec=CODECS[codec],
            level=_level(properties, codec) if codec in WITH_LEVELS else None,
        )

    def of_writer(self, with_dictionary: Sequence[str]) -> dict[str, Any]:
        """Return the options of PyArrow's writer. Columns with these names get dictionaries."""
        return {
            "compression": self.codec,
            "compression_level": self.level,
            "use_dictionary": with_dictionary,
            "store_decimal_as_integer": True,  # where they have 18 digits at most, as Iceberg demands
            "store_schema": False,
        }


@dataclass(frozen=True)
class Destination:
    """Where the new files of one table go, how they are named, and how its data files are written."""

    location: str  # the table's
    properties: Properties  # those of the table that say how it is written
    prefix: str  # of the files' names

    @classmethod
    def of_table(cls, table: Table, prefix: str) -> "Destination":
        """Return the destination of new files of a table, whose names begin with the prefix."""
        writing = {name: value for name, value in table.properties.items() if name.startswith("write.")}
        return cls(table.location(), Properties(writing), prefix)

    @cached_property
    def options(self) -> FileOptions:
        """How the table's properties ask for its data files to be written."""
        return FileOptions.of_table(self.properties)

    def new_location(self, suffix: str = ".parquet") -> str:
        """Return a location for a new file: a data file, or one that is beside these."""
        return self._locations.new_data_location(self._new_name(suffix))

    def new_metadata_location(self, suffix: str) -> str:
        """Return a location for a new file beside the metadata."""
        return self._locations.new_metadata_location(self._new_name(suffix))

    def _new_name(self, suffix: str) -> str:
        return f"{self.prefix}-{uuid.uuid4()}{suffix}"

    @property
    def _locations(self) -> LocationProvider:
        return find_locations(self.location, self.properties)


def find_locations(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return where the files of a table at this location go. ValueError if its properties name code."""
    refuse_code(properties)
    return load_location_provider(location, dict(properties))


def refuse_code(properties: Mapping[str, str]) -> None:
    """Raise ValueError if a table's properties name code. PyIceberg would import and call it."""
    if PROVIDER in properties:
        raise ValueError(f"{PROVIDER} is set, but the connector does not run code that a table names")


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    if LEVEL not in properties:
        return None
    from pyarrow import Codec  # slow to import, and a session opens without it if no table has a level

    least, most = Codec.minimum_compression_level(codec), Codec.maximum_compression_level(codec)
    level = read_number(properties, LEVEL, least, least)
    if level > most:
        raise ValueError(f"{LEVEL} is {level}; with {codec} {most} is the most")
    return level
