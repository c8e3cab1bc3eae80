"""The metadata that a commit replaces, in catalogs that keep only its address. There the client writes the metadata.

PyIceberg loads the metadata again to commit, applies the changes to what it finds, and copies all of it. Our commit
replaces the metadata that the table was loaded with. It is refused if the table has other metadata by now.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2


class CommitBase(threading.local):
    """The table to which the current thread commits, as it was loaded."""

    table: Table | None = None

    def commit(self, table: Table, send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        """Send a commit that replaces the metadata of this table."""
        self.table = Table(
            table.name(), _convert(_SharingMetadata, table.metadata), table.metadata_location, table.io, table.catalog
        )
        try:
            response = send()
        finally:
            self.table = None
        return CommitTableResponse(
            metadata=_convert(TableMetadataV2, response.metadata), metadata_location=response.metadata_location
        )


class _SharingMetadata(TableMetadataV2):
    """Metadata whose copies share all parts that no update replaces. No code changes metadata in place.

    PyIceberg's commit makes a deep copy. With some hundred snapshots that takes as long as the rest of the commit.
    """

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002 - pydantic's signature
    ) -> "_SharingMetadata":
        return super().model_copy(update=update)


def _convert(kind: type[TableMetadataV2], metadata: TableMetadata) -> TableMetadata:
    if not isinstance(metadata, TableMetadataV2):
        return metadata
    return kind.model_construct(_fields_set=metadata.model_fields_set, **dict(metadata))
