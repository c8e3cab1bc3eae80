"""File groups: what compaction hands to the tasks that rewrite them, and what the tasks give back."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from connector.encoding.live_rows.deletion_vectors import FileId
from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.host.errors import ConnectorError, UnreadableFileError
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile


@dataclass(frozen=True)
class FileGroup:
    """Data files of one partition and spec that are rewritten together."""

    sources: tuple[SourceFile, ...]  # oldest first: their rows keep this order unless the table has a sort order
    # Of the partition, by column. A file may lack a column that all of its rows are partitioned by.
    partition_values: tuple[tuple[int, Any], ...] = ()

    @property
    def files(self) -> set[FileId]:
        """The sources, and the files or vectors that delete rows of them."""
        return {file for source in self.sources for file in (source.path, *source.position_deletes)}

    def add_defaults(self, columns: Iterable[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the columns of the new files. Those that a source lacks have the values of the partition."""
        values = dict(self.partition_values)
        return tuple(replace(column, default=values.get(column.id, column.default)) for column in columns)


@dataclass(frozen=True)
class CompactedGroup:
    """The files that have all rows of a group's sources that no position delete of the sources has deleted."""

    group: FileGroup
    files: tuple[DataFile, ...]  # durable; none if all rows are deleted
    kept: tuple[int, ...]  # for each source: how many of its rows the new files have
    order: str | None = None  # an object that names the source and the position of each new row; None: source by source
    processor_seconds: float = field(default=0.0, compare=False)  # of the task


@dataclass(frozen=True)
class FailedGroup:
    """A group that could not be rewritten. None of its new files is left."""

    group: FileGroup
    error: ConnectorError
    processor_seconds: float = field(default=0.0, compare=False)  # of the task

    @property
    def unreadable(self) -> set[str]:
        """The paths of the sources that cannot be read, or whose deleted rows are unknown. The others can be rewritten
        without them."""
        if not isinstance(self.error, UnreadableFileError):
            return set()
        return {each.path for each in self.group.sources if self.error.path in (each.path, *each.position_deletes)}


GroupOutcome: TypeAlias = CompactedGroup | FailedGroup

# Performs groups. Takes one when it can begin it. Yields an outcome for each, in any order.
Compact: TypeAlias = Callable[
    [TargetFiles, Iterable[FileGroup], Refreshed[Properties]], Generator[GroupOutcome, None, None]
]
