"""Repeats reads that a server cannot answer now, after the time that it asks for by the header Retry-After.

A catalog may limit how many requests it answers in a second. To open a task of hundreds of tables takes as many
requests, eight at once. Without a wait, such a task would never open. Also, while a catalog restarts, what stands
before it answers for some seconds, and a publication should not fail for that.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import sleep
from typing import Any, Final

from requests import Response, codes

from connector.host.http_time_limits import READS

# The statuses after which Iceberg's own client in Java repeats a read.
REPEATED: Final = frozenset(
    {codes.too_many_requests, codes.bad_gateway, codes.service_unavailable, codes.gateway_timeout}
)
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, before a read is repeated
LONGEST_PAUSE: Final = 10.0  # seconds, whatever the server asks for: others wait for the read


class RetryAfter:
    """Repeats the reads of a session of `requests`. It is a hook for each answer.

    If a read was repeated in vain, others are not repeated until the server has answered one: a server that is down for
    long must not keep each read waiting.
    """

    def __init__(self) -> None:
        self._is_in_vain = False

    def __call__(self, response: Response, **options: Any) -> Response:
        if response.request.method not in READS:  # what a commit is answered, its own attempts decide
            return response
        for pause in () if self._is_in_vain else PAUSES:
            if response.status_code not in REPEATED:
                break
            asked_for = read_retry_after(response.headers.get("Retry-After", ""), LONGEST_PAUSE)
            _ = response.content  # so that its connection can be used again
            sleep(max(pause, asked_for))
            response = response.connection.send(response.request, **options)
        self._is_in_vain = response.status_code in REPEATED
        return response


def read_retry_after(value: str, longest: float) -> float:
    """Return how many seconds to wait, as a Retry-After header says, in seconds or until a date: at most `longest`."""
    if value.isdecimal():
        return min(float(value), longest)
    try:
        seconds = (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):  # no date, or one that no calendar has
        return 0.0
    return min(max(seconds, 0.0), longest)
