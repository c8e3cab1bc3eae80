"""How long `acknowledged` is held back, so that small transactions do not make a snapshot every second.

While it is held the runtime goes on reading into the next transaction, which is then larger.
"""

from datetime import timedelta
from typing import Final

QUICK_TRANSACTIONS: Final = 3  # at the start of a session: whoever has just started it wants to see rows
LARGE_TRANSACTION: Final = 128 << 20  # bytes of data files: worth a snapshot of its own; there may be a backlog


class UploadInterval:
    """Decides for one session, commit by commit."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval.total_seconds()
        self._commits = 0

    def hold(self, committed: int) -> float:
        """Seconds to hold the acknowledgement of a transaction that has just committed so many bytes of data files."""
        if not committed:
            return 0.0
        self._commits += 1
        if self._commits <= QUICK_TRANSACTIONS or committed >= LARGE_TRANSACTION:
            return 0.0
        return self._interval
