"""What became of a compaction: of the groups of one commit, and of all commits of one table."""

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from connector.encoding.rewriting.file_groups import FailedGroup, FileGroup
from connector.host.logs import Event, fields, format_bytes
from connector.iceberg.commits.compaction_changes import REPLACED
from connector.iceberg.commits.compaction_commit import CommittedCompaction
from connector.iceberg.maintenance.compaction_plan import GroupPlan
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompactionResult:
    """What was done, and what is left."""

    commits: int = 0
    groups: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0  # of the new files
    deleted_rows: int = 0  # that the new files do not have
    delete_files: int = 0  # that were removed
    seconds: float = 0.0
    processor_seconds: float = 0.0  # of the tasks
    dropped: int = 0  # groups that another writer has changed meanwhile
    begun_bytes: int = 0  # of all groups that were begun, also of those that failed or were given up
    errors: tuple[str, ...] = ()  # one for each group that could not be rewritten
    debt: int = 0  # bytes of data files that are still to be rewritten

    @property
    def failed(self) -> int:
        """The number of groups that could not be rewritten."""
        return len(self.errors)

    def __add__(self, other: "CompactionResult") -> "CompactionResult":
        return CompactionResult(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class PerformedGroups:
    """What became of the groups of one commit."""

    begun: Sequence[GroupPlan]
    committed: CommittedCompaction
    failed: tuple[FailedGroup, ...]
    outdated: tuple[FailedGroup, ...]  # another writer has replaced files before they were read

    @property
    def dropped(self) -> dict[FileGroup, str]:
        """Why groups were given up: another writer has changed them."""
        return {each.compacted.group: each.reason for each in self.committed.dropped} | {
            each.group: REPLACED for each in self.outdated
        }

    @property
    def dropped_size(self) -> int:
        """Bytes of these groups. They are no debt any more."""
        dropped = self.dropped
        return sum(each.size for each in self.begun if each.group in dropped)

    @property
    def result(self) -> CompactionResult:
        """What was done, without what is left."""
        before = [file for file in self.committed.removed if file.is_data]
        after = [file for group in self.committed.groups for file in group.files]
        rows = sum(file.rows for file in after)
        compacted = [*self.committed.groups, *(each.compacted for each in self.committed.dropped)]
        worked = [each.processor_seconds for each in compacted]
        in_vain = [each.processor_seconds for each in (*self.failed, *self.outdated)]
        return CompactionResult(
            commits=1 if self.committed.groups else 0,
            groups=len(self.committed.groups),
            files_before=len(before),
            files_after=len(after),
            bytes_before=sum(file.size for file in before),
            bytes_after=sum(file.size for file in after),
            rows=rows,
            deleted_rows=sum(file.rows for file in before) - rows,
            delete_files=len(self.committed.removed) - len(before),
            processor_seconds=sum(worked) + sum(in_vain),
            dropped=len(self.dropped),
            begun_bytes=sum(each.size for each in self.begun),
            errors=tuple(str(each.error) for each in self.failed),
        )


def log_groups(path: TableIdentifier, done: PerformedGroups, seconds: float) -> None:
    """Log what was compacted, what was given up, and what has failed."""
    for failed in done.failed:
        count = len(failed.unreadable or failed.group.sources)
        log.warning("table %s: %d data file(s) were not compacted: %s", path, count, failed.error)
    for group, reason in done.dropped.items():
        log.info("table %s: a compaction of %d data file(s) was given up: %s", path, len(group.sources), reason)
    if not done.committed.groups:
        return
    result = done.result
    log.info(
        "table %s: compacted %d data file(s) with %s into %d with %s, and removed %d delete file(s), %.1f s",
        path,
        result.files_before,
        format_bytes(result.bytes_before),
        result.files_after,
        format_bytes(result.bytes_after),
        result.delete_files,
        seconds,
        extra=fields(
            Event.COMPACTED,
            table=str(path),
            groups=result.groups,
            files=result.files_before,
            newFiles=result.files_after,
            bytes=result.bytes_before,
            newBytes=result.bytes_after,
            rows=result.rows,
            deletedRows=result.deleted_rows,
            deleteFiles=result.delete_files,
            dropped=result.dropped,
            failed=result.failed,
            attempts=done.committed.attempts,
            seconds=round(seconds, 3),
        ),
    )
