"""Temporary files that the driver and tasks exchange: on a disk that they share, or in the object store.

Objects are named like the transaction's data files: if this process is killed, they are removed with those.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyiceberg.io import FileIO

from connector.host.errors import ConnectorError
from connector.storage import storage_errors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalFile:
    """A file on a disk that driver and task share."""

    path: Path

    @contextmanager
    def open(self, _: FileIO, *, seekable: bool = False) -> Iterator[Any]:  # noqa: ARG002 - it is always seekable
        """Open the file. It is read without a buffer."""
        with self.path.open("rb", buffering=0) as file:
            yield file

    @contextmanager
    def create(self, _: FileIO) -> Iterator[Any]:
        """Make the file, and yield a stream that writes it."""
        with self.path.open("xb") as file:  # buffered: otherwise a full disk may take a part without an error
            yield file

    def remove(self, _: FileIO, __: str) -> None:
        """Remove the file, if that is possible: its directory is removed at the end."""
        with suppress(OSError):
            self.path.unlink()

    def translate_errors(self) -> AbstractContextManager[None]:
        """Do nothing: an error of the disk says enough."""
        return nullcontext()

    def new_run(self, _: Callable[[], str]) -> "LocalFile":
        """Return a new place for a sorted run: in the same directory, and removed with it."""
        return LocalFile(self.path.parent / f"{uuid.uuid4()}.run")


@dataclass(frozen=True)
class StoredObject:
    """An object beside a table's files, opened with the credentials for these."""

    location: str

    @contextmanager
    def open(self, io: FileIO, *, seekable: bool = False) -> Iterator[Any]:
        """Open the object, and translate the store's errors."""
        with self.translate_errors(), io.new_input(self.location).open(seekable=seekable) as stream:
            yield stream

    @contextmanager
    def create(self, io: FileIO) -> Iterator[Any]:
        """Yield a stream that writes the object, and translate the store's errors.

        A task that was lost may have written the same object before.
        """
        with self.translate_errors(), io.new_output(self.location).create(overwrite=True) as stream:
            yield stream

    def remove(self, io: FileIO, contents: str) -> None:
        """Delete the object. If that fails, only warn. `contents` says what it has, in the plural."""
        with warn_if_left(contents, self.location), suppress(FileNotFoundError):
            io.delete(self.location)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate the store's errors of reading or writing the open object."""
        return storage_errors.translate_errors(self.location)

    def new_run(self, new_location: Callable[[], str]) -> "StoredObject":
        """Return a new place for a sorted run: in the store, too. `new_location` returns its location."""
        return StoredObject(new_location())


TemporaryFile: TypeAlias = LocalFile | StoredObject


@contextmanager
def warn_if_left(contents: str, location: str) -> Iterator[None]:
    """Only warn if objects that have served their purpose cannot be deleted: a later session removes them."""
    try:
        with storage_errors.translate_errors(location):
            yield
    except (ConnectorError, OSError) as error:
        log.warning("%s stay in the object store until a later session: %s", contents, error)
