"""Recovery: a session first commits the pending commits of earlier sessions. Then it reads the fences of its tables.

The order matters: a session may build on a fence value only if no earlier commit can still change it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from connector.host.errors import MissingTableError, OlderTableError, RetryableError, UnfitCommitError, UserError
from connector.host.groups import group_by
from connector.host.redaction import redact_and_shorten
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import lost_commits
from connector.iceberg.fences.fence import LastFences, explain_older_answer
from connector.iceberg.fences.fence_errors import explain_lagging
from connector.iceberg.fences.renamed_tables import (
    CHOOSE_TABLE,
    WrittenTable,
    explain_other_owner,
    find_renamed_tables,
)
from connector.model.state import FinishedCommit, StagedCommit
from connector.model.table_identifier import Owner, TableIdentifier

if TYPE_CHECKING:
    from connector.session.committer import Committer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """The commits of earlier sessions that are done or void, and the bound tables after these commits."""

    commits: Sequence[StagedCommit]
    tables: Sequence[BoundTable]


def select_overlapping_commits(staged: Iterable[StagedCommit], key_range: str) -> list[StagedCommit]:
    """Return the staged commits whose key ranges overlap a session's. The session commits them even if their binding
    no longer exists."""
    return [commit for commit in staged if commit.writer.overlaps(key_range)]


def recover(
    staged: Sequence[StagedCommit], committer: "Committer", bind: Callable[[], Sequence[BoundTable]]
) -> Recovered:
    """Commit `staged`, then bind the tables. Raises UnfitCommitError if pending commits do not fit their bound
    table, and UserError if a bound table has too many of them. Commits that a table refuses wait, as in a session.

    Raises RetryableError if commits of another writer must come first, and are still pending.
    """
    commits = committer.commit(staged)
    try:
        tables = bind()
    except MissingTableError as error:
        # If rows are staged for the missing table, the error of their commit says more.
        _check_recovered({(TableIdentifier(*error.path), error.state_key)}, staged, committer)
        raise
    pending = [commit for commit in staged if committer.find_error(commit.chain_id)]
    superseded = [commit for commit in pending if any(table.has_superseded(commit) for table in tables)]
    committer.supersede(dict.fromkeys(commit.chain_id for commit in superseded))
    # A table's commits of other key ranges and of older state keys come before all commits of this session.
    state_keys = {(table.binding.path, table.writer.state_key) for table in tables}
    uuids = {table.table_id for table in tables}
    _check_recovered(state_keys | uuids, staged, committer)
    for table in tables:
        _check_predecessors(table, committer)
    # Only now: what waits for a table without a binding, or from before a backfill, stops no other table. If a task
    # with too much for a bound table could open, each restart would add a transaction.
    committer.check_limit({table.chain_id for table in tables})
    return Recovered((*commits, *superseded), tables)


def bind_newest(bind: Callable[[], Sequence[BoundTable]]) -> Sequence[BoundTable]:
    """Bind the tables. If one is older than the state says, bind them again for RETRY_FOR: the catalog may have
    answered from a replica or a cache. Raises OlderTableError if it stays older."""
    try:
        return bind()
    except OlderTableError:
        # Imported here: it takes long, and is rarely needed.
        from connector.iceberg.commits.retry_commits import RETRY_FOR, retry

        return retry(lambda _: bind(), _judge_older, RETRY_FOR)


def _judge_older(error: Exception, number: int, is_last: bool) -> OlderTableError | None:
    """Return the error of an older table, unless another attempt may get a newer one. Raises any other error."""
    if not isinstance(error, OlderTableError):
        raise error
    log.warning("attempt %d to open the tables: %s", number, redact_and_shorten(str(error)))
    return error if is_last else None


def check_names(tables: Sequence[BoundTable], may_be_others: Sequence[bool]) -> None:
    """Raise UserError if a table has the name of another table of the session, or belongs to another task.

    `may_be_others` says for each binding whether it may have the table of another task. No table of rejected rows may.
    """
    written = [WrittenTable(table.binding.path, table.writer, table.properties) for table in tables]
    wrong = [*find_renamed_tables(written)]
    of_bindings, of_rejected_rows = written[: len(may_be_others)], written[len(may_be_others) :]
    for table, may_be in zip(of_bindings, may_be_others, strict=True):
        if not may_be and (reason := explain_other_owner(table)):
            wrong.append(f"{reason} {CHOOSE_TABLE}")
    for reason in filter(None, map(explain_other_owner, of_rejected_rows)):
        wrong.append(f"{reason} Choose another table name for the binding whose rejected rows it would get.")
    if wrong:
        raise UserError("\n".join(wrong))


def check_finished(
    tables: Sequence[BoundTable], finished: Sequence[FinishedCommit], staged: Sequence[StagedCommit]
) -> None:
    """Raise OlderTableError if a table lacks commits that it had, because it was restored from an older copy. Or if a
    table is older than the backfill after which this is the first session.

    Without this check, the session would continue on the older value, and its maintenance would delete the data files
    of these commits as orphan files. What it staged on a table of before a backfill could never be added.
    """
    by_table = group_by(lost_commits.list_newest(finished, staged), attrgetter("table_uuid"))
    known: list[FinishedCommit | StagedCommit] = [*finished, *staged]
    recorded = group_by(known, attrgetter("table_uuid"))
    # Commits to generations that no table of the session has had.
    generations = frozenset[str]().union(*(table.generations for table in tables))
    unknown = {commit.writer.state_key for commit in finished if commit.table_uuid not in generations}
    paths = {(commit.path, commit.writer.state_key) for commit in staged if commit.table_uuid not in generations}
    stored = {commit.writer.state_key for commit in known}
    for table in tables:
        uuid, key_range, state_key = table.table_uuid, table.writer.key_range, table.writer.state_key
        for commit in by_table.get(uuid, ()):
            if commit.writer.overlaps(key_range):
                lost_commits.check_lost(table.binding.path, table.properties, commit)
        writers = [commit.writer for commit in recorded.get(uuid, ())]
        is_known = any(each.state_key == state_key and each.overlaps(key_range) for each in writers)
        is_absent = state_key in unknown or (table.binding.path, state_key) in paths
        is_first = state_key not in stored and lost_commits.is_of_before_backfill(table.properties, table.writer)
        if is_first or (table.has_earlier_owner and is_absent and not is_known):
            raise lost_commits.explain_older_table(table.binding.path, state_key, Owner.of(table.properties))


def check_fences(tables: Sequence[BoundTable], fences: LastFences) -> None:
    """Raise OlderTableError if a table was read as it was before the commits of the recovery: what is staged on an
    older value could never be committed."""
    for table in tables:
        if older := explain_older_answer(table.properties, fences.find(table.table_id)):
            raise explain_lagging(table.binding.path, older)


def _check_recovered(
    bound: Collection[tuple[TableIdentifier, str]], staged: Sequence[StagedCommit], committer: "Committer"
) -> None:
    """Raise the UnfitCommitError of a bound table: the table was replaced, or staged files are gone, so no retry helps.

    `bound` has pairs of a table and a state key, and pairs of a table and the UUID of the table that is bound now.
    """
    for commit in staged:
        error = committer.find_error(commit.chain_id)
        is_bound = (commit.path, commit.writer.state_key) in bound or commit.table_id in bound
        if isinstance(error, UnfitCommitError) and is_bound:
            raise error


def _check_predecessors(table: BoundTable, committer: "Committer") -> None:
    """Raise RetryableError if a table with one row for each key still lacks commits of another key range or state key.

    The state does not say in which order the commits of different writers were staged. Without this check, a later
    session would not know which of two pending rows of a key is the newer one.
    """
    if table.binding.updates is None:
        return
    for commit in committer.find_pending(table.table_id, table.writer.key_range):
        if commit.writer != table.writer:
            raise RetryableError(
                f"table {table.binding.table}: rows that an earlier session staged (state key "
                f"{commit.writer.state_key}, key range {commit.writer.key_range}) could not be added: "
                f"{committer.find_error(commit.chain_id)} A table with standard updates must have these rows before a "
                f"session of another state key or key range can start (here {table.writer.state_key}, "
                f"{table.writer.key_range}). They stay in the task's state, and the next start tries again."
            )
