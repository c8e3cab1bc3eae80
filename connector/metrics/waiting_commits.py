"""What waits for each table: rows of the open transaction, staged commits, and messages for the webhook."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from connector.host.facts import CommitFailure, StagedRows
from connector.metrics import definitions
from connector.metrics.counts import Counts, Labels


@dataclass(frozen=True)
class _Waiting:
    """A staged commit. `since` is when its first row was received."""

    table: str
    rows: int
    size: int  # bytes
    since: float


class WaitingCommits:
    """Keeps the gauges of what waits. `find_label` returns the label of a table; `began` is when the session began."""

    def __init__(self, counts: Counts, find_label: Callable[[str], str], began: float) -> None:
        self._counts = counts
        self._find_label = find_label
        self._began = began
        self._open: dict[str, float] = {}  # by table with rows in the open transaction: when its first row was received
        self._staged: dict[str, _Waiting] = {}  # by commit id
        self._failures: dict[str, CommitFailure] = {}  # by table
        self._untold: dict[str, float] = {}  # by table: when the oldest commit was made that the webhook is not told of
        self._tables: set[str] = set()

    def begin(self, table: str) -> None:
        """Note a table: nothing waits for it yet."""
        self._tables.add(table)

    def receive(self, table: str, since: float) -> None:
        """Note that the open transaction has rows of a table. Its first row, of any table, was received at `since`."""
        self._open[table] = since

    def stage(self, fact: StagedRows) -> None:
        """Note a staged commit. The state does not say when the rows of an earlier session were received."""
        since = next(iter(self._open.values()), self._began)
        self._staged[fact.commit_id] = _Waiting(fact.table, fact.rows, fact.size, since)

    def close(self) -> None:
        """Note that the open transaction has ended: all of its rows are staged, or were rejected."""
        self._open.clear()

    def fail(self, table: str, reason: CommitFailure) -> None:
        """Note that a table has refused its commits."""
        self._failures[table] = reason

    def end(self, table: str, commit_ids: tuple[str, ...]) -> None:
        """Note that these commits wait no more."""
        for commit_id in commit_ids:
            self._staged.pop(commit_id, None)
        self._failures.pop(table, None)

    def tell(self, table: str, since: float | None) -> None:
        """Note since when a message about a table waits for the webhook, if one does."""
        if since is None:
            self._untold.pop(table, None)
        else:
            self._untold[table] = since

    def show(self) -> None:
        """Set the gauges. This looks at all tables, so it is done when they are read, and not for each fact."""
        labels = {self._find_label(table) for table in self._tables}
        self._show_staged(labels)
        self._show_failures(labels)
        rows = [*self._open.items(), *((each.table, each.since) for each in self._staged.values())]
        self._counts.replace(definitions.OLDEST_WAITING, self._find_oldest(rows))
        self._counts.replace(definitions.OLDEST_NOTIFICATION, self._find_oldest(self._untold.items()))

    def _find_oldest(self, waiting: Iterable[tuple[str, float]]) -> dict[Labels, float]:
        """Return the smallest time of each label. The times are given by table."""
        oldest: dict[Labels, float] = {}
        for table, since in waiting:
            label = (self._find_label(table),)
            oldest[label] = min(since, oldest.get(label, since))
        return oldest

    def _show_staged(self, labels: set[str]) -> None:
        nothing: dict[Labels, float] = {(label,): 0.0 for label in labels}
        transactions, rows, sizes = nothing.copy(), nothing.copy(), nothing.copy()
        for each in self._staged.values():
            label = (self._find_label(each.table),)
            transactions[label] += 1
            rows[label] += each.rows
            sizes[label] += each.size
        self._counts.replace(definitions.WAITING_TRANSACTIONS, transactions)
        self._counts.replace(definitions.WAITING_ROWS, rows)
        self._counts.replace(definitions.WAITING_BYTES, sizes)

    def _show_failures(self, labels: set[str]) -> None:
        reasons: dict[str, set[CommitFailure]] = defaultdict(set)
        for table, reason in self._failures.items():
            reasons[self._find_label(table)].add(reason)
        failing: dict[Labels, float] = {(each,): float(bool(reasons[each])) for each in labels}
        self._counts.replace(definitions.COMMIT_FAILING, failing)
        refused: dict[Labels, float] = {(each,): float(CommitFailure.SIGN_IN in reasons[each]) for each in labels}
        self._counts.replace(definitions.SIGN_IN_REFUSED, refused)
