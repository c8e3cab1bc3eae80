"""Spark jobs that rewrite data files: a task takes one file after another."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from threading import Lock
from typing import Final, TypeAlias

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.converted_files import Rewrite, rewrite_converted
from connector.encoding.rewriting.rewritten_schemas import UnconvertibleError
from connector.host.groups import divide
from connector.host.late_start import start_when_needed
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.spark.jvm.lanes import Lane
from connector.spark.jvm.start_spark import start_spark
from connector.storage.file_io import open_file_io

# Credentials may expire before the last file of a large table is written. Each job gets fresh ones.
JOB_SIZE: Final = 4 << 30  # bytes of data files


# What `rewrite_converted` returns, or its error: the errors of all files are raised together.
FileOutcome: TypeAlias = tuple[DataFile, ...] | UnconvertibleError | None


@contextmanager
def rewrite_jobs(settings: Mapping[str, str]) -> Iterator[Rewrite]:
    """Yield a function that rewrites the files of one table. Tables are rewritten one after the other.

    Spark starts with the first job, and is killed when the block ends.
    """
    turn = Lock()
    with start_when_needed(partial(start_spark, settings, Lane.BETWEEN)) as start:

        def rewrite(
            target: TargetFiles, sources: Sequence[SourceFile], access: Refreshed[Properties]
        ) -> list[tuple[DataFile, ...] | None]:
            with turn:
                return [
                    files
                    for job in divide(sources, JOB_SIZE, attrgetter("size"))
                    for files in _check(
                        start().spark.map(partial(_rewrite, target, access.current().value), job).result()
                    )
                ]

        yield rewrite


def _rewrite(target: TargetFiles, file_properties: Properties, source: SourceFile) -> FileOutcome:
    try:
        return rewrite_converted(open_file_io(file_properties), target, source)
    except UnconvertibleError as error:
        return error


def _check(outcomes: Sequence[FileOutcome]) -> list[tuple[DataFile, ...] | None]:
    unconvertible = [outcome.column_ids for outcome in outcomes if isinstance(outcome, UnconvertibleError)]
    if unconvertible:
        raise UnconvertibleError(*frozenset.union(*unconvertible))
    return [outcome for outcome in outcomes if not isinstance(outcome, UnconvertibleError)]
