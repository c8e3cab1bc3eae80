"""What could be wrong with how the driver writes files, and with what it says of them."""

import os
from typing import Any

from connector.host.errors import ConnectorError
from connector.iceberg.commits import snapshot
from connector.spark.blocks import spool
from connector.storage import store_properties
from crash.faults import swap


def swallows_a_full_disk() -> None:
    append = spool.OpenBlock.append

    def append_what_fits(self: Any, store: Any) -> None:
        try:
            append(self, store)
        except (ConnectorError, OSError):
            os.ftruncate(self.file.fileno(), self.size)
            os.lseek(self.file.fileno(), self.size, os.SEEK_SET)

    swap(spool.OpenBlock, "append", append_what_fits)


def dates_by_its_own_clock() -> None:
    swap(snapshot, "max", lambda now, _: now)


def reuses_manifests() -> None:
    swap(snapshot, "copy_manifest", lambda manifest: manifest)


def waits_as_long_as_the_library() -> None:
    swap(store_properties, "S3_TIME_LIMITS", {})
