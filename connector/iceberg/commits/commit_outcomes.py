"""The outcomes of an attempt to commit the staged commits of one writer to one table.

None of them is unknown: if the answer to a request is lost, the next attempt looks whether the table has the commits.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connector.host.errors import ConnectorError
from connector.model.state import StagedCommit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableCommit:
    """A commit that a table took."""

    before: Table  # as it was loaded
    after: TableMetadata
    located: frozenset[str] = frozenset()  # objects of located rows, which nothing needs any more
    lists: frozenset[str] = frozenset()  # of its data files, which the state may still name


@dataclass(frozen=True)
class Committed:
    """Staged commits of one writer that their table has got now."""

    staged: tuple[StagedCommit, ...]
    added: tuple[StagedCommit, ...]  # those of them that no earlier process has added
    attempts: int
    seconds: float
    commit: TableCommit


@dataclass(frozen=True)
class AlreadyCommitted:
    """Staged commits of one writer that their table had before."""

    staged: tuple[StagedCommit, ...]


@dataclass(frozen=True)
class Superseded:
    """Staged commits that a backfill has made void: their table never gets them."""

    staged: tuple[StagedCommit, ...]


@dataclass(frozen=True)
class Failed:
    """Staged commits of one writer that are still pending."""

    staged: tuple[StagedCommit, ...]
    error: ConnectorError


Outcome: TypeAlias = Committed | AlreadyCommitted | Superseded | Failed
Tell: TypeAlias = Callable[[Outcome], object]  # must not keep the metadata that an outcome has


def warn_superseded(superseded: Superseded) -> None:
    """Log that these rows are given up."""
    log.warning(
        "table %s: %d rows that were staged before its backfill are not added",
        superseded.staged[0].path,
        sum(commit.rows for commit in superseded.staged),
    )
