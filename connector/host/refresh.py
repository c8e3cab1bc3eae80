"""Tokens and keys that expire: renewed at half of their life, so that a failure leaves time to try again."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

PAUSE: Final = 0.1  # after a failed attempt: this part of the life that is left


@dataclass(frozen=True)
class Lease(Generic[T]):
    """A value that may be used for a while. Times are seconds since the epoch; None: it is not known to expire."""

    value: T = field(repr=False)
    expires_at: float | None = None
    renew_at: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Until it is to be renewed."""
        return None if self.renew_at is None else max(self.renew_at - time.time(), 0)

    @classmethod
    def until(cls, value: T, expires_at: float | None) -> "Lease[T]":
        """A value that was obtained just now."""
        now = time.time()
        return cls(value, expires_at, None if expires_at is None else now + max(expires_at - now, 0) / 2)


class Refreshed(Generic[T]):
    """A value that is always fresh, for any number of threads."""

    def __init__(self, what: str, fetch: Callable[[], Lease[T]], first: Lease[T] | None = None) -> None:
        self._what = what
        self._fetch = fetch
        self._lease = first
        self._lock = threading.Lock()

    def current(self) -> Lease[T]:
        """The value, renewed if it is due. Raises what `fetch` raises, unless the old value can still be used."""
        with self._lock:
            lease = self._lease
            if lease is None or lease.seconds_left == 0:
                self._lease = lease = self._fetch_or_keep(lease)
            return lease

    def discard(self) -> None:
        """The value was refused: it is not used again, whenever it was to expire."""
        with self._lock:
            self._lease = None

    def _fetch_or_keep(self, old: Lease[T] | None) -> Lease[T]:
        try:
            return self._fetch()
        except Exception as error:
            left = 0.0 if old is None or old.expires_at is None else old.expires_at - time.time()
            if old is None or left <= 0:
                raise
            log.warning("%s: not renewed (%s), good for another %.0f s", self._what, type(error).__name__, left)
            return Lease(old.value, old.expires_at, time.time() + PAUSE * left)
