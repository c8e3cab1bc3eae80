"""Credentials that expire. They are refreshed at half of their life, so that after a failure there is time to try
again."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from connector.host import facts
from connector.host.errors import UserError
from connector.host.facts import RefreshedCredentials, RefreshFailure
from connector.host.redaction import redact_and_shorten

T = TypeVar("T")

log = logging.getLogger(__name__)

SHORT_LIFE: Final = 60  # seconds: with less left, a value is not used while a new one is fetched
PAUSE: Final = 0.1  # after a failed attempt, as a part of the remaining life


@dataclass(frozen=True)
class Lease(Generic[T]):
    """A value that expires. Times are in seconds since the epoch; None means that no expiry is known."""

    value: T = field(repr=False)
    expires_at: float | None = None
    renew_at: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the value should be refreshed."""
        return None if self.renew_at is None else max(self.renew_at - time.time(), 0)

    @classmethod
    def until(cls, value: T, expires_at: float | None) -> "Lease[T]":
        """Return a lease of a value that was obtained just now."""
        now = time.time()
        return cls(value, expires_at, None if expires_at is None else now + max(expires_at - now, 0) / 2)


class Refreshed(Generic[T]):
    """A value that is always valid. Any number of threads may use it."""

    def __init__(
        self,
        what: str,
        fetch: Callable[[], Lease[T]],
        first: Lease[T] | None = None,
        refusal: type[Exception] = UserError,
    ) -> None:
        """`fetch` raises a `refusal` if the sign-in is not accepted, and other errors if there is no answer."""
        self._what = what
        self._fetch = fetch
        self._refusal = refusal
        self._lock = threading.Lock()
        self._meanwhile: Lease[T] | None = None  # what others get while one thread refreshes the value
        self._keep(first)

    def current(self) -> Lease[T]:
        """Return the value, refreshed if that is due. Raises what `fetch` raises if the old value has expired.

        One thread refreshes it. The others get the old value meanwhile, unless it expires within SHORT_LIFE: a server
        that hangs must not hold up all requests, and a request must not outlive its credentials.
        """
        old = self._lease
        if old and not self._is_due(old):
            return old
        left = self._find_life(old)
        if not self._lock.acquire(blocking=left <= SHORT_LIFE):
            assert old is not None, "what has time left is a value"
            return self._prolong_for_all(old, left)
        try:
            lease = self._lease  # another thread may have refreshed it
            return self._fetch_or_prolong(lease) if lease is None or self._is_due(lease) else lease
        finally:
            self._lock.release()

    def discard(self) -> None:
        """Do not use this value again: it was refused, although it may not have expired."""
        with self._lock:
            self._keep(None)

    def _keep(self, lease: Lease[T] | None) -> None:
        """Keep a lease that was obtained just now. Its end is known by the monotonic clock, too."""
        self._ends = _convert_time(lease.expires_at if lease else None)
        self._keep_until_due(lease)

    def _keep_until_due(self, lease: Lease[T] | None) -> None:
        """Keep the lease until it is due by either clock: one may be set back, the other stands still in a suspended
        machine."""
        self._lease, self._due = lease, _convert_time(lease.renew_at if lease else None)

    def _is_due(self, lease: Lease[T]) -> bool:
        return lease.seconds_left == 0 or time.monotonic() >= self._due

    def _fetch_or_prolong(self, old: Lease[T] | None) -> Lease[T]:
        try:
            lease = self._fetch()
        except Exception as error:
            is_refused = isinstance(error, self._refusal)
            facts.report(RefreshedCredentials(RefreshFailure.REFUSED if is_refused else RefreshFailure.NO_ANSWER))
            left = self._find_life(old)
            if old is None or left <= 0:
                raise
            reason = f"{type(error).__name__}: {redact_and_shorten(str(error))}".removesuffix(": ")
            log.warning("%s: not refreshed (%s), still valid for %.0f s", self._what, reason, left)
            prolonged = _prolong(old, left)
            self._keep_until_due(prolonged)
            return prolonged
        facts.report(RefreshedCredentials())
        self._keep(lease)
        return lease

    def _prolong_for_all(self, old: Lease[T], left: float) -> Lease[T]:
        """Return the same lease until it is due: with another one, each task ends its data file."""
        meanwhile = self._meanwhile
        if meanwhile is None or meanwhile.value is not old.value or not meanwhile.seconds_left:
            self._meanwhile = meanwhile = _prolong(old, left)
        return meanwhile

    def _find_life(self, lease: Lease[T] | None) -> float:
        """Return the seconds until the value expires, by the clock that says so first. 0 if there is no value."""
        if lease is None or lease.expires_at is None:
            return 0.0
        return min(lease.expires_at - time.time(), self._ends - time.monotonic())


def _prolong(lease: Lease[T], left: float) -> Lease[T]:
    """Return a lease of the same value, which has so many seconds left. It is due again before that."""
    return Lease(lease.value, lease.expires_at, time.time() + PAUSE * left)


def _convert_time(at: float | None) -> float:
    """Return a time since the epoch by the monotonic clock, as both are now. None means never."""
    return math.inf if at is None else time.monotonic() + at - time.time()
