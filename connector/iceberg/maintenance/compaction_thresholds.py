"""The thresholds of compaction: table properties that say which files are rewritten, and how large the new ones become.

They have the names of the options of Spark's `rewrite_data_files`, with `flow.compaction.` before them. Spark has no
option like the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from connector.encoding.parquet.file_options import FileOptions
from connector.evolution.property_changes import COMPACTION_PROPERTY
from connector.iceberg.metadata.table_properties import read_switch
from connector.model.properties import demand, read_number

MIN_FILE_SIZE: Final = "flow.compaction.min-file-size-bytes"
MAX_FILE_SIZE: Final = "flow.compaction.max-file-size-bytes"
MIN_INPUT_FILES: Final = "flow.compaction.min-input-files"
DELETE_RATIO: Final = "flow.compaction.delete-ratio-threshold"
COMMIT_ALLOWANCE: Final = "flow.compaction.bytes-per-commit"

_MIN_SHARE: Final = 0.75  # of the target size; the shares are those of Spark's `rewrite_data_files`
_MAX_SHARE: Final = 1.8
_LEAST_RATIO: Final = 0.01


@dataclass(frozen=True)
class CompactionThresholds:
    """Which files of a table are too small, or have too many deleted rows."""

    target_size: int  # bytes
    min_size: int  # bytes; a smaller file is merged with others
    max_size: int  # bytes; a new file does not become larger
    min_files: int = 5  # small files that are merged, unless they make a file of the target size
    delete_ratio: float = 0.3  # of a file's rows; a file is rewritten if as many are deleted
    commit_allowance: int = 64 << 10  # bytes that are rewritten for each commit, if that keeps a small table in shape

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "CompactionThresholds":
        """Read a table's properties. ValueError if one of them is invalid."""
        target = FileOptions.of_table(properties).target_size
        min_size = read_number(properties, MIN_FILE_SIZE, int(target * _MIN_SHARE))
        max_size = read_number(properties, MAX_FILE_SIZE, int(target * _MAX_SHARE))
        if not min_size <= target <= max_size:
            raise ValueError(
                f"{MIN_FILE_SIZE} is {min_size} and {MAX_FILE_SIZE} is {max_size}; write.target-file-size-bytes, which "
                f"is {target}, must be between them"
            )
        min_files = read_number(properties, MIN_INPUT_FILES, cls.min_files, least=2)
        allowance = read_number(properties, COMMIT_ALLOWANCE, cls.commit_allowance, least=0)
        return cls(target, min_size, max_size, min_files, _read_ratio(properties, cls.delete_ratio), allowance)


def is_compaction_enabled(properties: Mapping[str, str]) -> bool:
    """Whether sessions compact the table. ValueError if the property is invalid."""
    return read_switch(properties, COMPACTION_PROPERTY, False)


def check_compaction(properties: Mapping[str, str]) -> None:
    """Raise ValueError if a table with these properties cannot be compacted."""
    is_compaction_enabled(properties)
    CompactionThresholds.of(properties)


def _read_ratio(properties: Mapping[str, str], default: float) -> float:
    text = properties.get(DELETE_RATIO, str(default))
    with demand(properties, DELETE_RATIO, f"must be a number from {_LEAST_RATIO} upwards"):
        if "_" in text or not _LEAST_RATIO <= float(text) < inf:  # only Python reads 1_000
            raise ValueError
    return float(text)
