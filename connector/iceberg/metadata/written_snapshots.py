"""The snapshots that a session wrote last, in memory: it reads them again with its next transaction."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final
from uuid import UUID

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import Table

from connector.storage.file_io import RememberedFile, WrittenFile

KEPT_BYTES: Final = 64 << 10  # of the newest snapshot of each table


class RememberingFileIO(FileIO):
    """Reads some files from memory, and all others from their store."""

    def __init__(self, io: FileIO, files: Mapping[str, RememberedFile]) -> None:
        """`files` are those in memory, by their locations."""
        super().__init__(io.properties)
        self._io, self._files = io, files

    def new_input(self, location: str) -> InputFile:
        """Return a file to read. To read one in memory takes no request."""
        return self._files[location] if location in self._files else self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write to the store."""
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file in the store. FileNotFoundError if there is none."""
        self._io.delete(location)


class WrittenSnapshots:
    """The manifest list and the new manifests of the snapshot that the session wrote last, of each table.

    Their locations are random, and the files never change: the same location has the same content, whatever has become
    of the table. Which files are read is always up to the table as its catalog has it now.
    """

    def __init__(self) -> None:
        self._newest: dict[UUID, Mapping[str, RememberedFile]] = {}

    def add(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Keep the files of a snapshot instead of the table's earlier ones. Of many bytes, the first files are kept."""
        sizes = accumulate(map(len, files))
        kept = [file.to_input_file() for file, size in zip(files, sizes, strict=True) if size <= KEPT_BYTES]
        self._newest[table.metadata.table_uuid] = {file.location: file for file in kept}

    def with_memory(self, table: Table) -> Table:
        """Return the same table, as one whose files are read from memory if they are there."""
        io = RememberingFileIO(table.io, self._newest.get(table.metadata.table_uuid, {}))
        return Table(table.name(), table.metadata, table.metadata_location, io, table.catalog)
