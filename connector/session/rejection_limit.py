"""Limits how many rows of a binding may be rejected: a few are accepted, but many mean that the source is broken."""

from operator import itemgetter
from typing import Final

from connector.host.errors import TooManyRejectedError
from connector.model.invalid_values import Tally, Treatment

SAMPLE: Final = 1000  # rows; fewer say little about their source
FIELDS_NAMED: Final = 3  # in the error


class RejectionLimit:
    """The limit of one binding in one session. The ratio is that of at least SAMPLE rows, from several transactions if
    one has fewer."""

    def __init__(self, table: str, max_ratio: float) -> None:
        self._table, self._max_ratio = table, max_ratio
        self._rows, self._treated = 0, Tally()

    def check(self, accepted: int, treated: Tally) -> None:
        """Count the rows of a transaction before it is staged. `accepted` is the number of rows that are not rejected.

        Raises TooManyRejectedError if the ratio is too high.
        """
        self._treated.add_all(treated)
        rejected = self._treated.total(Treatment.REJECTED)
        self._rows += accepted + treated.total(Treatment.REJECTED)
        if rejected > self._max_ratio * max(self._rows, SAMPLE):
            raise TooManyRejectedError(self._table, rejected, self._rows, self._max_ratio, self._describe_causes())
        if self._rows >= SAMPLE:
            self._rows, self._treated = 0, Tally()

    def _describe_causes(self) -> list[str]:
        """Return a text for each of the fields with the most rejected rows."""
        counts = [
            (treated.count, f"{treated.count} by field {field!r}, such as that of {treated.example}")
            for field, treatment, treated in self._treated
            if treatment is Treatment.REJECTED
        ]
        return [cause for _, cause in sorted(counts, key=itemgetter(0), reverse=True)[:FIELDS_NAMED]]
