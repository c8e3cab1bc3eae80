"""What could be wrong with how files are written, and with what is said of them."""

import os
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from connector import staging
from connector.errors import ConnectorError
from connector.iceberg import catalogs, snapshot
from connector.rows import files
from connector.rows.files import DataFileWriter
from connector.rows.statistics import split_offsets
from connector.state import DataFile
from crash.faults import swap


def swallows_upload_errors() -> None:
    finish = DataFileWriter.finish

    def finish_anyhow(self: DataFileWriter) -> list[DataFile]:
        with suppress(ConnectorError, OSError):
            return finish(self)
        return []

    swap(DataFileWriter, "finish", finish_anyhow)


def swallows_a_full_disk() -> None:
    append = staging._OpenBlock.append

    def append_what_fits(self: Any, store: Any) -> None:
        try:
            append(self, store)
        except (ConnectorError, OSError):
            os.ftruncate(self.file.fileno(), self.size)
            os.lseek(self.file.fileno(), self.size, os.SEEK_SET)

    swap(staging._OpenBlock, "append", append_what_fits)


def dates_by_its_own_clock() -> None:
    swap(snapshot, "max", lambda now, _: now)


def reuses_manifests() -> None:
    swap(snapshot, "deepcopy", lambda manifests: manifests)


def waits_as_long_as_the_library() -> None:
    swap(catalogs, "S3_TIME_LIMITS", {})


def misplaces_row_groups() -> None:
    """Where nothing begins: what looks for the row groups of a part of a file finds none."""

    def just_before_the_end(metadata: pq.FileMetaData) -> tuple[int, ...]:
        group = metadata.row_group(0)
        size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        return (split_offsets(metadata)[0] + size - 1,)

    swap(files, "split_offsets", just_before_the_end)
