"""Waits for as long as a server asks, by the header Retry-After.

A catalog may limit how many requests it answers in a second. To open a task of hundreds of tables takes as many
requests, eight at once. Without a wait, such a task would never open.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import sleep
from typing import Any, Final

from requests import Response, codes

READS: Final = frozenset({"GET", "HEAD"})  # what a commit is answered, its own attempts decide
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, before a read is repeated
LONGEST_PAUSE: Final = 10.0  # seconds, whatever the server asks for: others wait for the read


def repeat_reads(response: Response, **options: Any) -> Response:
    """Repeat a read that was answered with "too many requests". A hook of a session for each answer."""
    for pause in PAUSES:
        if response.status_code != codes.too_many_requests or response.request.method not in READS:
            break
        asked_for = read_retry_after(response.headers.get("Retry-After", ""), LONGEST_PAUSE)
        _ = response.content  # so that its connection can be used again
        sleep(max(pause, asked_for))
        response = response.connection.send(response.request, **options)
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
