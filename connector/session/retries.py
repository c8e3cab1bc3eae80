"""Retries what tables have not taken, on a clock of its own: a source that is quiet sends no transaction to do it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from connector.host.signals import Stopped
from connector.session.committer import Committer

# A runtime ends the process 5 to 10 seconds after the end of its input.
LAST_ATTEMPT: Final = 4.0  # seconds


@contextmanager
def run_retries(committer: Committer, interrupt: Callable[[Exception], None]) -> Iterator[None]:
    """Retry until the session ends, and then a last time. `interrupt` is given the error that has to end the session.

    RetryableError if the input ends and rows still wait.
    """
    threading.Thread(target=_retry, args=(committer, interrupt), name="retries", daemon=True).start()
    try:
        yield
        committer.finish(LAST_ATTEMPT)
    except Stopped:
        committer.log_waiting()  # the last record says what is in no table
        raise
    finally:
        committer.end()


def _retry(committer: Committer, interrupt: Callable[[Exception], None]) -> None:
    try:
        while committer.wait_for_retry():
            committer.retry()
    except Exception as error:
        interrupt(error)
