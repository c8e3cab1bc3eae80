"""The optimistic lock of catalogs that keep only the address of a table's metadata: a commit replaces only the metadata
that its table was loaded with.

There PyIceberg loads the metadata again, applies the changes to what it finds, and copies all of it. With this, it
finds the metadata that the table was loaded with. The commit is refused if the table has other metadata by now.
"""

import threading
from collections.abc import Callable

from pyiceberg.table import CommitTableResponse, Table


class CommitBase(threading.local):
    """The table to which the current thread commits, as it was loaded."""

    table: Table | None = None

    def commit(self, table: Table, send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        """Send a commit that replaces the metadata of this table."""
        # Imported with the first commit: its classes are slow to make.
        from connector.iceberg.metadata.copied_metadata import share_parts, unshare_parts

        self.table = Table(table.name(), share_parts(table.metadata), table.metadata_location, table.io, table.catalog)
        try:
            response = send()
        finally:
            self.table = None
        metadata = unshare_parts(response.metadata)
        return CommitTableResponse(metadata=metadata, metadata_location=response.metadata_location)
