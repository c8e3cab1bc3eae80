"""What could be wrong with how Spark's tasks write data files: planted where their workers are made."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.parquet import statistics
from connector.encoding.parquet.data_files import DataFileWriter
from connector.host.errors import ConnectorError
from connector.host.threads import StartedCalls
from connector.model.state import DataFile
from connector.spark.tasks import arranged_files, write_task
from connector.storage.file_io import write_small_file
from crash.faults import DEFECT, swap


def plant() -> None:
    """The defect that the environment names, if it is one of these."""
    DEFECTS.get(os.environ.get(DEFECT, ""), lambda: None)()


def swallows_upload_errors() -> None:
    """Small files are written at once here, so that `finish` meets their errors."""
    finish = DataFileWriter.finish

    def finish_anyhow(self: DataFileWriter) -> list[DataFile]:
        with suppress(ConnectorError, OSError):
            return finish(self)
        return []

    def write_at_once(_: StartedCalls, io: FileIO, location: str, content: bytes) -> None:
        write_small_file(io, location, content)

    swap(DataFileWriter, "finish", finish_anyhow)
    for task in write_task, arranged_files:
        swap(task, "write_later", write_at_once)


def misplaces_row_groups() -> None:
    """Where nothing begins: what looks for the row groups of a part of a file finds none."""

    split_offsets = statistics.split_offsets

    def just_before_the_end(metadata: pq.FileMetaData) -> tuple[int, ...]:
        group = metadata.row_group(0)
        size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        return (split_offsets(metadata)[0] + size - 1,)

    swap(statistics, "split_offsets", just_before_the_end)


DEFECTS: Final[dict[str, Callable[[], None]]] = {
    defect.__name__: defect for defect in (swallows_upload_errors, misplaces_row_groups)
}
