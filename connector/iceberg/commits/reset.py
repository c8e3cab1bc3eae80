"""Lets an operator reset the fence of a task that cannot continue.

The fence gets a value that no process has read yet. Only a recovery from the state can commit after it; a process that
still runs stays fenced.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from posixpath import basename
from typing import Final

from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.table import Table

from connector.host.errors import BACKFILL, CommitUnknownError, FencedError, RetryableError, UserError
from connector.iceberg.commits.commit import commit_snapshot
from connector.iceberg.commits.commit_errors import (
    CONFLICTS,
    explain_broken_metadata,
    explain_refusal,
    is_final,
    list_unknown_errors,
    quote,
)
from connector.iceberg.commits.lost_commits import LostCommits, count_absent
from connector.iceberg.commits.missing_files import MissingFile, find_missing_files, find_unplaced
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.commits.summaries import summarize_writer
from connector.iceberg.commits.writers import RESET_PREFIX
from connector.iceberg.fences import fence
from connector.iceberg.fences.passed_values import reset_value
from connector.iceberg.metadata.retention import is_in_nessie
from connector.iceberg.metadata.snapshot_files import find_unreferenced
from connector.iceberg.metadata.table_properties import check_committable
from connector.model.state import FileList, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage import storage_errors
from connector.storage.file_io import files_of

# Why a commit may be in the table or not.
_NO_FILES: Final = "the list of their files is gone, or they have no files because they only delete rows"
_NO_HISTORY: Final = "Nessie does not show the snapshots that would tell, and their files may have been replaced since"
_UNREADABLE: Final = "not all of the table's snapshots can be read ({error})"


class Decision(StrEnum):
    """What to do with the staged commits of a fenced writer."""

    ADD = "add"
    SKIP = "skip"


@dataclass(frozen=True)
class Reset:
    """The new fence value of one writer, and what it means for the writer's rows."""

    writer: WriterId
    value: str
    consequences: tuple[str, ...]


def plan_reset(table: Table, pending: Sequence[StagedCommit], decision: Decision) -> Reset:
    """Plan how the writer of commits that cannot be made can continue, and tell what that costs.

    `pending` are all such commits of the writer, in order. UserError if the decision would damage the table.
    """
    writer = pending[0].writer
    lost = count_absent(table, writer, pending[0].follows)
    if lost and decision is Decision.ADD:
        raise _explain_unnamed_files(lost)
    files_missing = find_missing_files(table, pending)
    hidden = _NO_HISTORY if is_in_nessie(table) else ""  # why the table's snapshots may not show a commit
    try:
        added = _find_added(table, pending, files_missing)
    except (FileNotFoundError, InvalidMetadataError) as error:
        # Of a table that was restored from an older copy, snapshots may have expired since that copy.
        added, hidden = [], _UNREADABLE.format(error=f"{type(error).__name__}: {quote(error)}")
    missing = [commit for commit in pending if commit not in added]
    unknown = [each for each in _find_unknown(table, pending, files_missing, is_hidden=bool(hidden)) if each in missing]
    match decision:
        case Decision.ADD:
            if added:
                raise UserError(
                    f"{_count(added)} are in the table already: adding them again would double them. "
                    f"Use --staged {Decision.SKIP}."
                )
            if files_missing:
                raise UserError(
                    f"the staged file {files_missing[0].location} has been deleted: it cannot be added. Use --staged "
                    f"{Decision.SKIP}."
                )
            if find_unplaced(table, pending, ()):
                raise UserError(
                    "another engine has removed the partition spec of staged files from the table: they cannot be "
                    f"added. Use --staged {Decision.SKIP}."
                )
            if unknown and hidden:
                raise UserError(
                    f"{_count(unknown)} may be in the table already: {hidden}. Adding them could double them. Use "
                    f"--staged {Decision.SKIP}, or {BACKFILL}."
                )
            consequence = f"{_count(missing)} will be added when the task opens again.{_tell_cost_of_deleting(missing)}"
            value = pending[0].prev
        case Decision.SKIP:
            consequence = _tell_lost(lost) + " ".join(_tell_cost_of_skipping(missing, unknown, hidden or _NO_FILES))
            value = pending[-1].next
    return Reset(
        writer,
        reset_value(value),
        (
            consequence,
            "Rows that other processes have since committed for this writer stay in the table. If the task reads them "
            "again, from the checkpoint that belongs to this state, the table will have them twice.",
        ),
    )


def plan_reset_of_lost(lost: LostCommits, decision: Decision) -> Reset:
    """Plan how a writer can continue without commits that its table has lost. UserError if they are to be added."""
    if lost.is_in_table:
        said = (
            f"The table has the rows of the {lost.count} transaction(s): a snapshot says so, and only the fence "
            "property was removed or changed. None is lost."
        )
        return Reset(lost.writer, reset_value(lost.value), (said,))
    if decision is Decision.ADD:
        raise _explain_unnamed_files(lost.count)
    return Reset(lost.writer, reset_value(lost.value), (_tell_lost(lost.count).rstrip(),))


def _explain_unnamed_files(lost: int) -> UserError:
    return UserError(
        f"the table has lost {lost} transaction(s), and the state does not name their files any more: they cannot be "
        "added, and what is staged after them is not added without them. Bring the newest metadata of the table back, "
        f"or use --staged {Decision.SKIP}."
    )


def perform_reset(table: Table, reset: Reset, reason: str) -> None:
    """Set the fence to its new value and record the reason in the table, in one commit.

    RetryableError if the table has changed since it was loaded, or cannot be read; CommitUnknownError if the catalog
    does not answer; UserError or SignInError if it refuses the commit.
    """
    writer = reset.writer
    name = fence.property_name(writer)
    note = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "from": fence.read_value(table.properties, writer),
        "to": reset.value,
        "reason": reason,
    }
    properties = {name: reset.value, RESET_PREFIX + name.removeprefix(fence.PREFIX): json.dumps(note)}
    check_committable(table)
    try:
        with storage_errors.translate_errors(table.location()):
            # Every change of a fence moves the main branch. So a commit that asserts main has read the current fence.
            summary = summarize_writer(writer) | {"flow.fence-reset": reason}
            snapshot = SnapshotWriter().keep_files(table, writer, summary)
    except InvalidMetadataError as error:
        raise explain_broken_metadata(TableIdentifier.of(table), error, "Nothing was reset") from error
    try:
        commit_snapshot(table.catalog, table, snapshot, properties)
    except CONFLICTS as error:
        raise RetryableError(
            f"table {TableIdentifier.of(table)} was changed at the same time ({error}). Nothing was reset. Repeat the "
            "command."
        ) from error
    except list_unknown_errors() as error:
        if is_final(error):
            path = TableIdentifier.of(table)
            raise explain_refusal(path, error, "the reset", "Nothing was reset.", " and repeat the command.") from error
        raise CommitUnknownError(
            f"table {TableIdentifier.of(table)}: the catalog's answer got lost ({type(error).__name__}: {error}). "
            "`fence show` says whether the fence was reset."
        ) from error


def _tell_lost(lost: int) -> str:
    if not lost:
        return ""
    return (
        f"The table has lost the rows of {lost} transaction(s), unless their snapshots have expired: none of its "
        "snapshots is theirs. They stay lost until the source is read again. Their data files may be deleted as orphan "
        "files. "
    )


def _tell_cost_of_skipping(
    missing: Sequence[StagedCommit], unknown: Sequence[StagedCommit], reason: str
) -> Iterator[str]:
    if absent := [commit for commit in missing if commit not in unknown]:
        yield (
            f"{_count(absent)} are in no snapshot that the table still has, and will never be added. Unless another "
            "engine has rewritten them, they are lost until the source is read again."
        )
    if unknown:
        yield f"{_count(unknown)} may be in the table or not: {reason}. If they are not, they will never be added."
    if not missing:
        yield "All staged rows are in the table already: none is lost."


def _tell_cost_of_deleting(staged: Sequence[StagedCommit]) -> str:
    if not any(commit.located for commit in staged):
        return ""
    return (
        " Then they replace all rows of the keys that they have updated, also newer ones that another process has "
        "committed meanwhile. Backfill the binding if that may have happened."
    )


def _find_unknown(
    table: Table, pending: Sequence[StagedCommit], files_missing: Sequence[MissingFile], *, is_hidden: bool
) -> list[StagedCommit]:
    """Return the commits of which neither the fence nor the names of their files say if they were committed. If the
    history is hidden, only files that are found in the table say it."""
    try:
        fence.remaining_commits(pending, table.properties)
    except FencedError:
        gone = {file.location for file in files_missing}
        return [
            commit
            for commit in pending
            if is_hidden
            or not commit.file_count
            or (isinstance(commit.files, FileList) and commit.files.location in gone)
        ]
    return []  # none was committed: the fence says so


def _find_added(
    table: Table, pending: Sequence[StagedCommit], files_missing: Sequence[MissingFile]
) -> list[StagedCommit]:
    """Return the commits with files to which a snapshot of the table refers."""
    gone = {file.location for file in files_missing}
    names = [{basename(path) for path in _paths(table, commit, gone)} for commit in pending]
    absent = find_unreferenced(table, set().union(*names))
    numbered = list(enumerate(zip(pending, names, strict=True)))
    last = max((number for number, (_, its_names) in numbered if its_names - absent), default=-1)
    # A commit that only deletes rows has no files, and those of a list that is gone are unknown. A chain is committed
    # in order, so a later commit tells of them. Without one, they count as not added.
    return [
        commit for number, (commit, its_names) in numbered if its_names - absent or (not its_names and number < last)
    ]


def _paths(table: Table, commit: StagedCommit, gone: set[str]) -> Sequence[str]:
    if isinstance(commit.files, FileList) and commit.files.location in gone:
        return []
    return [file.path for file in files_of(table.io, commit.files)]


def _count(staged: Sequence[StagedCommit]) -> str:
    return f"{sum(commit.rows for commit in staged)} row(s) of {len(staged)} staged transaction(s)"
