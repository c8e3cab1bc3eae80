"""What is to be done for a table after a commit, in the background."""

import logging
import time
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connector.iceberg.metadata import old_metadata
from connector.iceberg.metadata.retention import due
from connector.iceberg.metadata.stored_files import is_in_table_bucket

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DueMaintenance:
    """Metadata files to delete, and whether snapshots are due to expire."""

    io: FileIO
    old_metadata: frozenset[str]
    expires: bool

    @classmethod
    def after(cls, table: Table, committed: TableMetadata) -> "DueMaintenance | None":
        """What a commit leaves to be done, given the table as it was loaded and its metadata now; None if nothing."""
        if is_in_table_bucket(table.location()):
            return None
        try:
            dropped = old_metadata.find_dropped(table.metadata, committed) if old_metadata.are_ours(table) else ()
            expires = bool(due(committed, time.time_ns() // 1_000_000))
        except Exception as error:  # the commit has landed: nothing that comes after it may say otherwise
            kind = type(error).__name__
            log.warning("table %s: nothing is tidied up: %s: %s", ".".join(table.name()), kind, error)
            return None
        return cls(table.io, frozenset(dropped), expires) if dropped or expires else None
