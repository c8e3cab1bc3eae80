"""The stores for data files that are not Amazon S3, as a config names them."""

from dataclasses import dataclass
from typing import TypeAlias

from connector.secret import Secret
from protocol.flow import Json


@dataclass(frozen=True)
class GoogleStorage:
    """A bucket of Google Cloud Storage. Without a way to sign in, the catalog hands out tokens."""

    bucket: str
    prefix: str = ""
    service_account: Secret | None = None
    uses_machine_s: bool = False
    endpoint: str = ""

    @property
    def location(self) -> str:
        return _joined(f"gs://{self.bucket}", self.prefix)


Storage: TypeAlias = GoogleStorage


def parse(storage: Json, *, uses_machine_s: bool) -> Storage:
    """`uses_machine_s`: whether what this machine can sign in with may be used, where the config has nothing."""
    key = storage.get("service_account_json")
    return GoogleStorage(
        storage["bucket"],
        storage.get("prefix", "").strip("/"),
        Secret(key) if key else None,
        uses_machine_s=uses_machine_s and not key,
        endpoint=storage.get("endpoint", "").rstrip("/"),
    )


def _joined(root: str, prefix: str) -> str:
    return f"{root}/{prefix}" if prefix else root
