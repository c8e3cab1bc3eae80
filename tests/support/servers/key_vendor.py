"""Keys for an S3 server that stop to work when their time is over, handed out as a catalog vends them."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from support.servers.s3_server import Keys, S3Server

EXPIRES_AT_MS: Final = "s3.session-token-expires-at-ms"


@dataclass
class KeyVendor:
    """Every call makes a user of the server, and deletes it when its life is over."""

    s3: S3Server
    lifetime: float  # seconds
    vended: list[Keys] = field(default_factory=list)
    expired: list[Keys] = field(default_factory=list)
    _timers: list[threading.Timer] = field(default_factory=list)

    def vend(self) -> Mapping[str, str]:
        keys = self.s3.new_user("admin")
        ends = time.time() + self.lifetime
        timer = threading.Timer(self.lifetime, self._expire, (keys,))
        timer.start()
        self.vended.append(keys)
        self._timers.append(timer)
        return {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
            EXPIRES_AT_MS: str(int(ends * 1000)),
            "s3.endpoint": self.s3.endpoint,
            "s3.path-style-access": "true",
            "client.region": self.s3.region,
        }

    def secret_of(self, access_key_id: str) -> str | None:
        """Of keys that are still good."""
        good = [keys for keys in self.vended if keys not in self.expired]
        return {keys.access_key_id: keys.secret_access_key for keys in good}.get(access_key_id)

    def _expire(self, keys: Keys) -> None:
        self.s3.delete_user(keys)
        self.expired.append(keys)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()


@contextmanager
def key_vendor(s3: S3Server, lifetime: float) -> Iterator[KeyVendor]:
    vendor = KeyVendor(s3, lifetime)
    try:
        yield vendor
    finally:
        vendor.close()
