"""What a catalog may do with a commit, by name: the Local one in the connector's own process, the others on the
wire."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import requests
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)

from crash.faults import Faults
from support.servers.fault_proxy import Answer, Fault

MEETING: Final = "meeting"  # two shards have looked at one table before either commits
MEETING_DEADLINE: Final = 30.0  # seconds


@dataclass(frozen=True)
class LostAnswer:
    """A commit lands, and its sender hears something else: what a call of the Local catalog raises, or what comes over
    the wire."""

    error: Callable[[], Exception]
    fault: Fault


LOST_ANSWERS: Final = {
    "commit-answered-500": LostAnswer(
        lambda: ServerError("500 Internal Server Error"), Fault(1, HTTPStatus.INTERNAL_SERVER_ERROR)
    ),
    "commit-answered-502": LostAnswer(
        lambda: CommitStateUnknownException("502 Bad Gateway"), Fault(1, HTTPStatus.BAD_GATEWAY)
    ),
    "commit-answered-503": LostAnswer(
        lambda: ServiceUnavailableError("503 Service Unavailable"), Fault(1, HTTPStatus.SERVICE_UNAVAILABLE)
    ),
    "commit-not-answered": LostAnswer(
        lambda: requests.ConnectionError("Connection reset by peer"), Fault(1, Answer.NONE)
    ),
    "commit-answered-conflict": LostAnswer(
        lambda: CommitFailedException("409 Conflict, to a request that was sent twice"), Fault(2, Answer.GENUINE)
    ),
}


def overtaken(table: str) -> str:
    """The fault of another engine that appends between our look at the table and our commit."""
    return f"commit-to-{table}-overtaken"


def refused(table: str) -> str:
    """The fault of a table that refuses commits."""
    return f"commits-to-{table}-refused"


def is_refused(faults: Faults, table: str, committer: str, overtake: Callable[[], object]) -> bool:
    """Whether a commit goes no further; before it does, others may act. A committer is a process or a request."""
    _meet(faults, table, committer)
    if faults.strikes(refused(table)):
        return True
    if faults.strikes(overtaken(table)):
        overtake()
    return False


def lost_answer(faults: Faults) -> LostAnswer | None:
    """What becomes of the answer to a commit that goes through."""
    return next((lost for name, lost in LOST_ANSWERS.items() if faults.strikes(name)), None)


def _meet(faults: Faults, table: str, committer: str) -> None:
    """Wait until somebody else has also looked at the table and is about to commit."""
    place = faults.directory / f"{MEETING}-{table}.place"
    if not place.is_dir():
        return
    (place / committer).touch()
    deadline = time.monotonic() + MEETING_DEADLINE
    while len(list(place.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
