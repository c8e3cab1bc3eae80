"""The manifest lists that a session has written: a commit on top of the session's own reads none from the object
store."""

from typing import Final
from uuid import UUID

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from connector.iceberg.files.written_file import RememberedFile, WrittenFile
from connector.iceberg.metadata.avro_files import read_manifest_list
from connector.iceberg.metadata.manifests import manifests_of

KEPT_BYTES: Final = 64 << 10  # for each table: several hundred manifests


class WrittenLists:
    """Each table's newest list. Locations are random and lists never change: the same location is the same list."""

    def __init__(self) -> None:
        self._newest: dict[UUID, RememberedFile] = {}

    def add(self, table: Table, written: WrittenFile) -> None:
        if len(written) <= KEPT_BYTES:
            self._newest[table.metadata.table_uuid] = written.to_input_file()

    def manifests_of(self, table: Table) -> list[ManifestFile]:
        """The current snapshot's manifests, freshly decoded."""
        snapshot = table.current_snapshot()
        written = self._newest.get(table.metadata.table_uuid)
        if snapshot and written and written.location == snapshot.manifest_list:
            return list(read_manifest_list(written))
        return manifests_of(table.io, snapshot)
