"""How many of a binding's rows may be rejected: a few are set aside, but a source that has gone wrong stops the
task."""

from operator import itemgetter
from typing import Final

from connector.host.errors import TooManyRejectedError
from connector.model.invalid_values import Tally, Treatment

SAMPLE: Final = 1000  # rows: fewer say nothing about their source
FIELDS_NAMED: Final = 3  # in the error


class RejectionLimit:
    """One binding's limit, for a session. At least a thousand rows are judged together, over as many transactions."""

    def __init__(self, table: str, max_ratio: float) -> None:
        self._table, self._max_ratio = table, max_ratio
        self._rows, self._treated = 0, Tally()

    def check(self, landing: int, treated: Tally) -> None:
        """Count a transaction that is about to be staged; `landing` is the number of its rows that are not rejected.

        TooManyRejectedError where the ratio is exceeded.
        """
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
        return [cause for _, cause in sorted(counts, key=itemgetter(0), reverse=True)[:FIELDS_NAMED]]
