"""Treated values of a session: a person is warned of them, and too many rejected rows stop the task.

A few rejected rows are accepted, but many mean that the source is broken.
"""

import logging
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final

from connector.host.errors import TooManyRejectedError
from connector.host.logs import Event, fields
from connector.model.invalid_values import Tally, Treatment

log = logging.getLogger(__name__)

SAMPLE: Final = 1000  # rows; fewer say little about their source
FIELDS_NAMED: Final = 3  # in the error
WARNINGS: Final = {
    Treatment.CLAMPED: "{0.count} date(s) outside the years 1 to 9999 were clamped to the nearest of these years",
    Treatment.NULLED: "{0.count} value(s) that do not fit the column became null, such as that of {0.example}",
    Treatment.REJECTED: "{0.count} row(s) go to the table of rejected rows, such as that of {0.example}",
}


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


class TreatmentWarnings:
    """Warns of values that were changed or rejected, once for each field and session."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables
        self._said: set[tuple[int, str, Treatment]] = set()

    def warn(self, treated: Mapping[int, Tally]) -> None:
        """Log new kinds of treatment. `treated` has the tally of a transaction for each binding's index."""
        for index, tally in treated.items():
            for field, treatment, values in tally:
                if (index, field, treatment) not in self._said:
                    self._said.add((index, field, treatment))
                    what = WARNINGS[treatment].format(values)
                    log.warning(
                        "table %s, field %r: %s; this warning appears once for each session",
                        self._tables[index],
                        field,
                        what,
                        extra=fields(Event(treatment), table=self._tables[index], field=field, count=values.count),
                    )
