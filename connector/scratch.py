"""A session's temporary directories."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

LONGEST_SOCKET_DIRECTORY: Final = 40  # characters


@dataclass(frozen=True)
class Scratch:
    """Where a session keeps what does not outlive it."""

    files: Path  # may grow to the size of the spool
    sockets: Path


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Directories that are removed in the end."""
    # A socket's path may have some 100 characters, of which Spark takes 42: not every machine's temporary directory
    # leaves that many.
    sockets_in = None if len(gettempdir()) <= LONGEST_SOCKET_DIRECTORY else "/tmp"
    with (
        # Spark may still be writing while its JVM is being killed.
        TemporaryDirectory(prefix="materialize-iceberg-", ignore_cleanup_errors=True) as files,
        TemporaryDirectory(prefix="mi-", dir=sockets_in, ignore_cleanup_errors=True) as sockets,
    ):
        yield Scratch(Path(files), Path(sockets))
