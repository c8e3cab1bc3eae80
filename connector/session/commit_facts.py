"""Reports to the metrics with which tables a session opens, which commits earlier sessions have staged, and how commits
end."""

from collections.abc import Iterable, Sequence

from pyiceberg.table.metadata import TableMetadata

from connector.config.advanced_options import AdvancedOptions
from connector.host import facts
from connector.host.errors import ConnectorError, FencedError, OlderTableError, SignInError
from connector.host.facts import (
    CommitFailure,
    CommittedRows,
    EndedCommits,
    FailedCommit,
    OpenedSession,
    StagedRows,
    TableState,
)
from connector.iceberg.commits.commit_outcomes import Committed, Failed, Outcome
from connector.iceberg.commits.summaries import SUMMARY_FENCE, read_count, read_summary
from connector.model.state import StagedCommit


def report_opened(tables: Iterable[str], limits: AdvancedOptions) -> None:
    """Report the tables of a session, and how much may wait for one of them."""
    facts.report(OpenedSession(tuple(tables), limits.max_waiting_commits, limits.max_waiting_bytes))


def report_recovered(staged: Sequence[StagedCommit]) -> None:
    """Report the staged commits of earlier sessions."""
    for commit in staged:
        facts.report(StagedRows(str(commit.path), commit.next, commit.rows, commit.size, is_recovered=True))


def report_outcome(outcome: Outcome) -> None:
    """Report how the attempt of a table has ended, and what the summary of its snapshot says."""
    table = str(outcome.staged[0].path)
    if isinstance(outcome, Failed):
        facts.report(FailedCommit(table, _find_reason(outcome.error)))
        return
    if isinstance(outcome, Committed):
        _report_commit(table, outcome, outcome.commit.after)
    facts.report(EndedCommits(table, tuple(commit.next for commit in outcome.staged)))


def _report_commit(table: str, committed: Committed, metadata: TableMetadata) -> None:
    summary = _find_summary(metadata, committed.staged[-1])
    size = sum(commit.size for commit in committed.added)
    added = read_count(summary, "added-files-size") or 0  # of data files and delete files
    facts.report(
        CommittedRows(
            table,
            rows=sum(commit.rows for commit in committed.added),
            files=sum(commit.file_count for commit in committed.added),
            size=size,
            deleted_rows=sum(commit.located.rows for commit in committed.added if commit.located),
            delete_files=read_count(summary, "added-delete-files") or 0,
            # Files that were staged before a column was converted are written again, and may be smaller then.
            delete_size=max(added - size, 0),
            seconds=committed.seconds,
        )
    )
    current = read_summary(metadata.current_snapshot())
    data_files, delete_files = (read_count(current, f"total-{kind}-files") or 0 for kind in ("data", "delete"))
    facts.report(TableState(table, len(metadata.snapshots), data_files, delete_files))


def _find_summary(metadata: TableMetadata, staged: StagedCommit) -> dict[str, str]:
    """Return the summary of the snapshot that has this commit. Other writers may have committed since."""
    summaries = map(read_summary, reversed(metadata.snapshots))
    return next((summary for summary in summaries if summary.get(SUMMARY_FENCE) == staged.next), {})


def _find_reason(error: ConnectorError) -> CommitFailure:
    match error:
        case OlderTableError():  # no other process: the table was restored, or a replica has answered
            return CommitFailure.OTHER
        case FencedError():
            return CommitFailure.FENCED
        case SignInError():
            return CommitFailure.SIGN_IN
    return CommitFailure.OTHER
