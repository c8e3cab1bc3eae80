"""What a commit starts from in catalogs that only keep the address of a table's metadata, which their clients write.

To commit, PyIceberg loads the metadata again, applies the changes to what it finds then, and copies all of it. Ours
replaces the very metadata that the table was loaded with, and is refused where that is no longer the table's.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2


class CommitBase(threading.local):
    """The table that the current thread commits to, as it was loaded."""

    table: Table | None = None

    def commit(self, table: Table, send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        """Send a commit with the table as its base."""
        self.table = Table(
            table.name(), _as(_SharingMetadata, table.metadata), table.metadata_location, table.io, table.catalog
        )
        try:
            response = send()
        finally:
            self.table = None
        return CommitTableResponse(
            metadata=_as(TableMetadataV2, response.metadata), metadata_location=response.metadata_location
        )


class _SharingMetadata(TableMetadataV2):
    """Metadata whose copies share whatever no update replaces, since nobody changes it in place.

    PyIceberg's commit copies it deeply, which for a table with some hundred snapshots takes as long as all the rest.
    """

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002 - pydantic's signature
    ) -> "_SharingMetadata":
        return super().model_copy(update=update)


def _as(kind: type[TableMetadataV2], metadata: TableMetadata) -> TableMetadata:
    if not isinstance(metadata, TableMetadataV2):
        return metadata
    return kind.model_construct(_fields_set=metadata.model_fields_set, **dict(metadata))
