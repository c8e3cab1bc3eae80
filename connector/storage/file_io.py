"""Opens, reads and writes files in any store.

A list of data files that is too long for the connector state is a file beside the data files. The state names it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from io import BytesIO
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from connector.host.errors import BACKFILL, ConnectorError, UnfitCommitError
from connector.host.redaction import hide_obtained
from connector.host.threads import StartedCalls, map_in_threads
from connector.model.properties import Properties
from connector.model.state import DataFile, FileList
from connector.storage.file_access import SECRET_PROPERTIES
from connector.storage.storage_errors import translate_errors
from connector.storage.store_kinds import S3_SCHEMES

if TYPE_CHECKING:
    from connector.storage.arrow_file_io import ArrowFileIO
    from connector.storage.s3_objects import S3Objects

# PyIceberg opens a FileIO whenever it loads a table or writes its files. To connect to a store again takes longer than
# to write a small file. There are several FileIOs if the catalog vends credentials for each table.
OPEN_FILE_IOS: Final = 32
# Larger objects are worth PyArrow's upload in parts. Uploads that are not finished may have as much in memory.
LARGEST_HELD: Final = 4 << 20  # bytes
LIST_SUFFIX: Final = "-files.json"

WriteFile: TypeAlias = Callable[[FileIO, str, bytes], object]  # writes a small file: its location and its content


class StoreFileIO(FileIO):
    """Opens, reads and writes files in any store with `ArrowFileIO`, which is opened with the first file.

    PyArrow is slow to import. A session opens without it if its catalog sends the metadata of tables.
    """

    @cached_property
    def arrow(self) -> "ArrowFileIO":
        """PyIceberg's FileIO for these properties."""
        from connector.storage.arrow_file_io import ArrowFileIO

        return ArrowFileIO(self.properties)

    def new_input(self, location: str) -> InputFile:
        """Return a file to read. If it is in S3, it is read with one request, unless it has to be seekable."""
        if objects := _find_objects(self, location):
            from connector.storage.s3_objects import ObjectFile

            return ObjectFile(objects, location, lambda: self.arrow.new_input(location))
        return self.arrow.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return self.arrow.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file. If there is none, this may raise FileNotFoundError."""
        path = location if isinstance(location, str) else location.location
        objects = _find_objects(self, path)
        if not (objects and objects.delete(path)):
            self.arrow.delete(location)


def open_file_io(properties: Mapping[str, str]) -> StoreFileIO:
    """Return a FileIO, the same one for the same properties, so that its connections stay open."""
    return _open(Properties(properties))


@lru_cache(OPEN_FILE_IOS)
def _open(properties: Properties) -> StoreFileIO:
    hide_credentials(properties)  # also in Spark's workers, which learn of secrets in no other way
    return StoreFileIO(dict(properties))


def hide_credentials(properties: Mapping[str, str]) -> None:
    """Hide the credentials among a store's properties in everything that is logged."""
    for name in SECRET_PROPERTIES & properties.keys():
        hide_obtained(properties[name])


def write_small_file(io: FileIO, location: str, content: bytes) -> None:
    """Write a file that is small and has a new name. It is durable when this returns."""
    objects = _find_objects(io, location) if len(content) <= LARGEST_HELD else None
    if objects and objects.put(location, content):
        return
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(content)


def _find_objects(io: FileIO, location: str) -> "S3Objects | None":
    """Return what sends single requests to the store of a location, if something does."""
    if urlsplit(location).scheme not in S3_SCHEMES:
        return None
    from connector.storage.s3_objects import open_s3_objects  # slow to import, and not used by other stores

    return open_s3_objects(Properties(io.properties))


def create_file(io: FileIO, location: str, write_file: WriteFile = write_small_file) -> Any:
    """Return a stream that writes a file with a new name. When it is closed, the file is whole. It is also durable, but
    for a small file: `write_file` gets that, and may write it later."""
    return _HeldStream(io, location, write_file)


def write_later(calls: StartedCalls, io: FileIO, location: str, content: bytes) -> None:
    """Begin to write a small file. It is durable when the calls are finished."""

    def write() -> None:
        with translate_errors(location):
            write_small_file(io, location, content)

    calls.start(write, len(content))


class _HeldStream:
    """Holds the content of a file until it is closed, or until it is no longer small. Then PyArrow's stream has it."""

    def __init__(self, io: FileIO, location: str, write_file: WriteFile) -> None:
        self._io, self._location, self._write_file = io, location, write_file
        self._held = BytesIO()
        self._size = 0
        self._stream: Any = None
        self.closed = False

    def write(self, content: bytes) -> int:
        if self._stream is None and self._size + len(content) > LARGEST_HELD:
            self._stream = self._io.new_output(self._location).create(overwrite=True)
            self._stream.write(self._held.getvalue())
            self._held.close()
        (self._stream or self._held).write(content)
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is durable before the stream is closed."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._stream is None:
            self._write_file(self._io, self._location, self._held.getvalue())
        else:
            self._stream.close()

    def abort(self) -> None:
        """Stop writing the file. What may be left of it is to be deleted."""
        self.closed = True
        if self._stream is not None:
            self._stream.close()


def delete_if_possible(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files to which nothing refers. Those that cannot be deleted stay, as orphan files."""

    def delete(location: str) -> None:
        with suppress(ConnectorError, OSError):
            io.delete(location)

    map_in_threads(delete, locations, "delete")


def write_list(io: FileIO, location: str, files: tuple[DataFile, ...]) -> FileList:
    """Write a list of files. It is durable when this returns."""
    with translate_errors(location):
        write_small_file(io, location, msgspec.json.encode(files))
    return FileList(location, len(files), sum(file.rows for file in files), sum(file.size for file in files))


def files_of(io: FileIO, files: tuple[DataFile, ...] | FileList) -> tuple[DataFile, ...]:
    """Return the files, read from their list if there is one. Raises UnfitCommitError if the list was changed."""
    if not isinstance(files, FileList):
        return files
    with translate_errors(files.location), io.new_input(files.location).open() as stream:
        content = stream.read()
    try:
        return msgspec.json.decode(content, type=tuple[DataFile, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnfitCommitError(
            f"{files.location}: this list of staged files was changed or is damaged ({error}). The {files.rows} rows "
            f"in these files stay staged in the task's state: restore the list, or {BACKFILL}."
        ) from error


class WrittenFile(OutputFile):
    """An output file with a new name. When it is closed, it is whole, but only in memory until it is sent."""

    def __init__(self, io: FileIO, location: str, pieces: Sequence[bytes] = ()) -> None:
        super().__init__(location)
        self._io = io
        self._sending = Lock()
        self._is_sent = False
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def exists(self) -> bool:
        """Whether the file is in the store; this asks the store."""
        return self._io.new_output(self.location).exists()

    def to_input_file(self) -> "RememberedFile":
        """Return the same file as it is read, from memory."""
        return RememberedFile(self.location, self.pieces)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - PyIceberg's signature
        """Return a stream whose pieces the file has when it is closed."""
        return _WrittenStream(self)

    def send(self) -> None:
        """Write the file to the store, if it is not there yet. It is durable when this returns.

        A thread of a failed attempt may still write it, and must not begin again in a file that a commit has named.
        """
        with self._sending:
            if not self._is_sent:
                self._write()
                self._is_sent = True

    def _write(self) -> None:
        write_small_file(self._io, self.location, b"".join(self.pieces))


class RememberedFile(InputFile):
    """An input file that is read from memory."""

    def __init__(self, location: str, pieces: Sequence[bytes]) -> None:
        super().__init__(location)
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def exists(self) -> bool:
        """Return True: the file has been written."""
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - PyIceberg's signature
        """Return a stream of the content. It makes no request."""
        return BytesIO(b"".join(self.pieces))


class _WrittenStream(OutputStream):
    def __init__(self, file: WrittenFile) -> None:
        self._file = file
        self._pieces: list[bytes] = []

    def write(self, b: bytes) -> int:
        self._pieces.append(b)
        return len(b)

    def tell(self) -> int:
        return sum(map(len, self._pieces))

    def close(self) -> None:
        self._file.pieces = self._pieces

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self.close()
