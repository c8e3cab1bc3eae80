"""The settings of the Parquet writer, from a table's properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
TARGET_SIZE: Final = "write.target-file-size-bytes"

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

    target_size: int
    codec: str
    level: int | None

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> "FileOptions":
        """ValueError if nothing can be written with these properties."""
        codec = properties.get(CODEC, "zstd").lower()
        if codec not in CODECS:
            raise ValueError(f"{CODEC} is {codec!r}; it may be {', '.join(CODECS)}")
        return cls(
            target_size=_number(properties, TARGET_SIZE, 1) or 512 << 20,
            codec=CODECS[codec],
            level=_level(properties, codec) if codec in WITH_LEVELS else None,
        )


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    level = _number(properties, LEVEL, least)
    if level is not None and level > most:
        raise ValueError(f"{LEVEL} is {level}; with {codec} {most} is the most")
    return level


def _number(properties: Mapping[str, str], name: str, least: int) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} is {text!r}; it must be a whole number from {least} upwards")
    return number
