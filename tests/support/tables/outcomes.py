"""What becomes of staged commits: all outcomes of an attempt, which a session is told one by one."""

from collections.abc import Collection, Sequence

from pyiceberg.catalog import Catalog

from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Outcome
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.model.state import ChainId, StagedCommit


def try_commits(
    catalog: Catalog,
    staged: Sequence[StagedCommit],
    without_retry: Collection[ChainId] = (),
    writers: SnapshotWriters | None = None,
) -> list[Outcome]:
    """Commit like `commit.try_commits`, and return the outcomes in the order of the tables."""
    outcomes: list[Outcome] = []
    commit.try_commits(catalog, staged, without_retry, writers, tell=outcomes.append)
    return sorted(outcomes, key=lambda outcome: outcome.staged[0].table_id)
