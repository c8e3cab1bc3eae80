"""The pending commits of all tables. A table that fails is retried and reported, and does not delay other tables.

Pending commits stay in the connector state. Each further transaction with rows for the table adds one to its chain.
Once the table accepts commits again, one commit adds the whole chain.

An attempt begins with `take`. It ends with `record_commit` or `record_failure` for each chain that it took. Until then,
no other attempt takes commits of the same tables.
"""

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from connector.host import facts
from connector.host.errors import ConnectorError, UserError
from connector.host.facts import WaitingState
from connector.host.groups import group_by
from connector.host.logs import format_bytes
from connector.model.state import ChainId, StagedCommit, TableId, encode_added, measure_share

FIRST_PAUSE: Final = 5.0  # seconds, doubled with every attempt up to LONGEST_PAUSE
LONGEST_PAUSE: Final = 300.0
# Half of the longest message of the runtime. The other half is for the task's specification, and for what shards stage
# before they notice that they are beyond the limit.
LARGEST_STATE: Final = 32 << 20  # bytes, of all shards
SMALLEST_STATE: Final = 256 << 10  # bytes: enough for a transaction of many tables, in a shard with few keys


@dataclass(frozen=True)
class Limit:
    """How much may be pending before the task stops. Below the limit, the log only warns."""

    commits: int  # for one table
    size: int  # bytes of data files, for one table
    state: int = LARGEST_STATE  # bytes in the connector state, for all tables of the session together


def find_state_limit(key_range: str) -> int:
    """Return the bytes of the connector state that the pending commits of a shard may take."""
    return max(SMALLEST_STATE, int(LARGEST_STATE * measure_share(key_range)))


@dataclass(frozen=True)
class WaitingTable:
    """A table with pending commits, and the reason why they are pending."""

    table: str
    transactions: int
    rows: int
    size: int  # bytes of data files
    error: ConnectorError | None  # None: the first attempt has not ended

    def __str__(self) -> str:
        return (
            f"table {self.table}: {self.transactions} transaction(s), {self.rows} rows, {format_bytes(self.size)} "
            f"staged and waiting: {self.error or 'the catalog has not answered yet.'}"
        )


@dataclass
class _Chain:
    commits: list[StagedCommit] = field(default_factory=list)
    in_attempt: int = 0  # how many of the commits the current attempt has; 0: no attempt has any
    error: ConnectorError | None = None  # None: no attempt has failed since the last commit
    pause: float = field(default_factory=lambda: FIRST_PAUSE)
    due: float = 0.0
    _measured: int = 0  # how many of the commits `_state` has
    _state: int = 0

    def measure_state(self) -> int:
        """Return the bytes that the commits take in the connector state."""
        added = self.commits[self._measured :]
        self._state += sum(len(msgspec.json.encode(encode_added([commit]))) for commit in added)
        self._measured = len(self.commits)
        return self._state


class Backlog:
    """The pending commits, by chain. `now` is in seconds, of any clock, but always of the same one."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._chains: dict[ChainId, _Chain] = {}

    def add(self, staged: Iterable[StagedCommit]) -> None:
        """Add staged commits to their chains. They are due when the other commits of their table are, or at once."""
        for commit in staged:
            self._chains.setdefault(commit.chain_id, _Chain()).commits.append(commit)

    def take(self, now: float) -> list[StagedCommit]:
        """Begin an attempt, and return the pending commits of all tables that are due. A table is not due during the
        pause after a failure, nor during an attempt."""
        ready = {table for table, due in self._find_due_times().items() if due <= now}
        taken = [commit for commit in self._list_commits() if commit.table_id in ready]
        for commit in taken:
            self._chains[commit.chain_id].in_attempt += 1
        return taken

    @property
    def is_attempting(self) -> bool:
        """Whether an attempt is running."""
        return any(chain.in_attempt for chain in self._chains.values())

    @property
    def next_due(self) -> float | None:
        """The time of the next attempt. None if nothing is pending, or if running attempts have all of it."""
        return min(self._find_due_times().values(), default=None)

    def end_pauses(self) -> None:
        """Make all pending commits due."""
        for chain in self._chains.values():
            chain.due = 0.0

    @property
    def failing(self) -> frozenset[ChainId]:
        """The chains whose last attempt failed."""
        return frozenset(chain_id for chain_id, chain in self._chains.items() if chain.error)

    def find_pending(self, table: TableId) -> list[StagedCommit]:
        """Return the pending commits of a table."""
        return [commit for commit in self._list_commits() if commit.table_id == table]

    def find_error(self, chain_id: ChainId) -> ConnectorError | None:
        """Return the error of a chain's last attempt. None if the chain has not failed or is not pending."""
        return self._chains[chain_id].error if chain_id in self._chains else None

    def record_commit(self, chain_id: ChainId) -> None:
        """End an attempt that committed its part of a chain. Commits that were added since are due at once."""
        chain = self._chains.pop(chain_id)
        if added := chain.commits[chain.in_attempt :]:
            self._chains[chain_id] = _Chain(added)
        if chain.error:
            self._measure_state()

    def drop(self, chain_id: ChainId) -> list[StagedCommit]:
        """Remove a chain that no attempt has, and return its commits."""
        return self._chains.pop(chain_id).commits

    def record_failure(self, chain_id: ChainId, error: ConnectorError, now: float) -> None:
        """End an attempt that failed. The chain is due again after a pause."""
        chain = self._chains[chain_id]
        chain.in_attempt = 0
        chain.error = error
        chain.due = now + chain.pause * random.uniform(0.5, 1)
        chain.pause = min(2 * chain.pause, LONGEST_PAUSE)

    def check_limit(self, bound: Collection[ChainId]) -> None:
        """Raise UserError if one of these chains fails and is longer than the limit, or if it fails and the chains of
        all failing tables are together.

        The session adds nothing to other chains. If only they fail, it may go on.
        """
        failing = [chain for chain_id, chain in self._chains.items() if chain.error and chain_id in bound]
        state = self._measure_state()
        if failing and state > self._limit.state:
            raise self._explain_state(state, failing[0].error) from failing[0].error
        for chain in failing:
            commits, size = len(chain.commits), sum(commit.size for commit in chain.commits)
            if commits > self._limit.commits or size > self._limit.size:
                raise UserError(
                    f"{chain.error} By now {commits} transactions ({format_bytes(size)}) wait for this table, more "
                    "than advanced.max_waiting_commits or advanced.max_waiting_bytes allow. They stay in the task's "
                    "state and are committed when the table accepts commits again. Remove the cause. To let other "
                    "tables go on meanwhile, raise these limits or disable this binding."
                ) from chain.error

    def _measure_state(self) -> int:
        """Return the bytes that the commits of failing chains take in the connector state, and tell the metrics."""
        size = sum(chain.measure_state() for chain in self._chains.values() if chain.error)
        facts.report(WaitingState(size, self._limit.state))
        return size

    def _explain_state(self, size: int, cause: ConnectorError | None) -> UserError:
        failing = [chain for chain in self._chains.values() if chain.error]
        return UserError(
            f"{cause} By now {sum(len(chain.commits) for chain in failing)} commits wait for "
            f"{len(failing)} table(s) and take {format_bytes(size)} of the task's state, which would soon be too "
            "large for a message of the runtime. They are committed when the tables accept commits again. "
            "Remove the cause. To let other tables go on meanwhile, disable the bindings of these."
        )

    def list_waiting(self) -> list[WaitingTable]:
        """Return a summary of each chain."""
        return [
            WaitingTable(
                table=str(path),
                transactions=len(chain.commits),
                rows=sum(commit.rows for commit in chain.commits),
                size=sum(commit.size for commit in chain.commits),
                error=chain.error,
            )
            for ((path, _), _), chain in self._chains.items()
        ]

    def _find_due_times(self) -> dict[TableId, float]:
        """Return when each table is due that no attempt has. All chains of a table are tried together."""
        by_table = group_by(self._chains.values(), lambda chain: chain.commits[0].table_id)
        return {
            table: max(chain.due for chain in chains)
            for table, chains in by_table.items()
            if not any(chain.in_attempt for chain in chains)
        }

    def _list_commits(self) -> Iterator[StagedCommit]:
        for chain in self._chains.values():
            yield from chain.commits
