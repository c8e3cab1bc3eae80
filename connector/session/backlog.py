"""Staged commits that their tables have not taken yet: one bad table is retried and reported, and holds up no other.

They stay in the connector state, and each further transaction with rows for the table adds one to its chain. When the
table takes commits again it takes the whole chain at once.

An attempt begins with `take` and ends with `landed` or `failed` for each chain. In between the chain's table is left
alone by any other attempt.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from connector.host.errors import ConnectorError, UserError
from connector.model.state import ChainId, StagedCommit, TableId

FIRST_PAUSE: Final = 5.0  # seconds, doubled with every attempt up to LONGEST_PAUSE
LONGEST_PAUSE: Final = 300.0


@dataclass(frozen=True)
class Limit:
    """How much may wait for one table before the task stops; up to there, warnings in the log are enough."""

    commits: int
    size: int  # bytes of data files


@dataclass(frozen=True)
class WaitingTable:
    """A table that has not taken what was staged for it, and why."""

    table: str
    transactions: int
    rows: int
    size: int  # bytes of data files
    error: ConnectorError | None  # None: the first attempt has not ended

    def __str__(self) -> str:
        return (
            f"table {self.table}: {self.transactions} transaction(s), {self.rows} rows, {self.size / 1e6:,.1f} MB "
            f"staged and waiting: {self.error or 'the catalog has not answered yet.'}"
        )


@dataclass
class _Waiting:
    staged: list[StagedCommit] = field(default_factory=list)
    tried: int = 0  # how many of them the present attempt holds; 0: there is none
    error: ConnectorError | None = None  # None: no attempt has failed since something landed
    pause: float = field(default_factory=lambda: FIRST_PAUSE)
    due: float = 0.0


class Backlog:
    """The staged commits that wait, by chain. `now` is in seconds, of any one clock."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._waiting: dict[ChainId, _Waiting] = {}

    def add(self, staged: Iterable[StagedCommit]) -> None:
        for commit in staged:
            self._waiting.setdefault(commit.chain_id, _Waiting()).staged.append(commit)

    def take(self, now: float) -> list[StagedCommit]:
        """Begin an attempt: everything but what waits for a table that pauses after a failure or is being tried."""
        ready = {table for table, due in self._due().items() if due <= now}
        taken = [commit for commit in self._staged() if commit.table_id in ready]
        for commit in taken:
            self._waiting[commit.chain_id].tried += 1
        return taken

    @property
    def is_tried(self) -> bool:
        """Whether an attempt is under way."""
        return any(waiting.tried for waiting in self._waiting.values())

    @property
    def next_due(self) -> float | None:
        """When to begin the next attempt; None if there is nothing to try that is not being tried now."""
        return min(self._due().values(), default=None)

    def end_pauses(self) -> None:
        """Everything is due."""
        for waiting in self._waiting.values():
            waiting.due = 0.0

    @property
    def failing(self) -> frozenset[ChainId]:
        """The chains whose last attempt failed."""
        return frozenset(chain for chain, waiting in self._waiting.items() if waiting.error)

    def waiting(self, table: TableId) -> list[StagedCommit]:
        """What a table has not taken yet."""
        return [commit for commit in self._staged() if commit.table_id == table]

    def error_of(self, chain: ChainId) -> ConnectorError | None:
        return self._waiting[chain].error if chain in self._waiting else None

    def landed(self, chain: ChainId) -> None:
        """The table has taken what was tried. What was added meanwhile is due at once."""
        waiting = self._waiting.pop(chain)
        if added := waiting.staged[waiting.tried :]:
            self._waiting[chain] = _Waiting(added)

    def failed(self, chain: ChainId, error: ConnectorError, now: float) -> None:
        """The table has not; it is tried again after a pause."""
        waiting = self._waiting[chain]
        waiting.tried = 0
        waiting.error = error
        waiting.due = now + waiting.pause * random.uniform(0.5, 1)
        waiting.pause = min(2 * waiting.pause, LONGEST_PAUSE)

    def check(self) -> None:
        """Raise the error of a table for which more than the limit waits."""
        for waiting in self._waiting.values():
            commits, size = len(waiting.staged), sum(commit.size for commit in waiting.staged)
            if waiting.error and (commits > self._limit.commits or size > self._limit.size):
                raise UserError(
                    f"{waiting.error} By now {commits} transactions ({size / 1e6:,.0f} MB) wait for this table, more "
                    "than advanced.max_waiting_commits or advanced.max_waiting_bytes allow. They stay in the task's "
                    "state and land once the table takes commits again."
                ) from waiting.error

    def waiting_tables(self) -> list[WaitingTable]:
        return [
            WaitingTable(
                table=".".join(path),
                transactions=len(waiting.staged),
                rows=sum(commit.rows for commit in waiting.staged),
                size=sum(commit.size for commit in waiting.staged),
                error=waiting.error,
            )
            for ((path, _), _), waiting in self._waiting.items()
        ]

    def _due(self) -> dict[TableId, float]:
        """When to try each table that is not being tried. All chains of a table are tried together."""
        by_table: dict[TableId, list[_Waiting]] = {}
        for waiting in self._waiting.values():
            by_table.setdefault(waiting.staged[0].table_id, []).append(waiting)
        return {
            table: max(waiting.due for waiting in chains)
            for table, chains in by_table.items()
            if not any(waiting.tried for waiting in chains)
        }

    def _staged(self) -> Iterator[StagedCommit]:
        for waiting in self._waiting.values():
            yield from waiting.staged
