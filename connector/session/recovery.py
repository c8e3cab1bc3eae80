"""Recovery: a session first commits what earlier sessions staged. Only then does it read the fences of its tables.

A fence value is safe to build on only if no earlier commit can still change it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from connector.host.errors import MissingTableError, UserError
from connector.iceberg.bound_table import BoundTable
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.session.committer import Committer


@dataclass(frozen=True)
class Recovered:
    """The commits of earlier sessions that are in their tables now, and the bound tables as they are after that."""

    commits: Sequence[StagedCommit]
    tables: Sequence[BoundTable]


def overlapping(staged: Iterable[StagedCommit], key_range: str) -> list[StagedCommit]:
    """Return the staged commits that a session of this key range finishes, even if their binding is gone."""
    return [commit for commit in staged if commit.writer.overlaps(key_range)]


def recover(
    staged: Sequence[StagedCommit], committer: Committer, bind: Callable[[], Sequence[BoundTable]]
) -> Recovered:
    """Commit what is staged, then bind the tables. UserError if a bound table can never take what is staged for it."""
    commits = committer.commit(staged)
    try:
        tables = bind()
    except MissingTableError as error:
        # If rows are staged for the table that is gone, that error says more.
        _check_recovered({(TableIdentifier(*error.path), error.state_key)}, staged, committer)
        raise
    # What another key range or an older state key staged for a table is committed before anything of this session.
    state_keys = {(table.binding.path, table.writer.state_key) for table in tables}
    uuids = {(table.binding.path, table.table_uuid) for table in tables}
    _check_recovered(state_keys | uuids, staged, committer)
    return Recovered(commits, tables)


def _check_recovered(
    bound: Collection[tuple[TableIdentifier, str]], staged: Sequence[StagedCommit], committer: Committer
) -> None:
    """Raise the UserError of a bound table: no retry can help. The table was replaced, or staged files are gone.

    `bound` has tables, each with a state key, or with the uuid of the table that takes the rows of any state key.
    """
    for commit in staged:
        error = committer.error_of(commit.chain_id)
        is_bound = (commit.path, commit.writer.state_key) in bound or commit.table_id in bound
        if isinstance(error, UserError) and is_bound:
            raise error
