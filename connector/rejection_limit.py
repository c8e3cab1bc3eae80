"""How much of what a binding sends may be rejected: a few bad rows are set aside, a source gone wrong stops the task."""

from operator import itemgetter
from typing import Final

from connector.errors import TooManyRejectedError
from connector.invalid_values import Tally, Treatment

SAMPLE: Final = 1000  # rows: fewer say nothing of their source
TOLD: Final = 3  # fields


class RejectionLimit:
    """One binding's, for a session. Rows are judged by the thousand at least, however small the transactions are."""

    def __init__(self, table: str, max_ratio: float) -> None:
        self._table, self._max_ratio = table, max_ratio
        self._rows, self._treated = 0, Tally()

    def check(self, landing: int, treated: Tally) -> None:
        """Of a transaction that is about to be staged; `landing` are its rows that are not rejected."""
        self._treated.add_all(treated)
        rejected = self._treated.total(Treatment.REJECTED)
        self._rows += landing + treated.total(Treatment.REJECTED)
        if rejected > self._max_ratio * max(self._rows, SAMPLE):
            raise TooManyRejectedError(self._table, rejected, self._rows, self._max_ratio, self._causes())
        if self._rows >= SAMPLE:
            self._rows, self._treated = 0, Tally()

    def _causes(self) -> list[str]:
        """The fields with the most rejected rows."""
        counts = [
            (treated.count, f"{treated.count} by field {field!r}, such as that of {treated.example}")
            for field, treatment, treated in self._treated
            if treatment is Treatment.REJECTED
        ]
        return [cause for _, cause in sorted(counts, key=itemgetter(0), reverse=True)[:TOLD]]
