"""A session's temporary directories: removed when it ends, or by the next session where it was killed."""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

LONGEST_SOCKET_DIRECTORY: Final = 40  # characters
OWNER: Final = "owner"  # a file that the living owner of a directory has locked
MINUTE: Final = 60.0  # seconds: a younger directory may not have been locked yet


@dataclass(frozen=True)
class Scratch:
    """Where a session keeps what does not outlive it."""

    files: Path  # may grow to the size of the spool
    sockets: Path


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Directories that are removed in the end."""
    temporary = Path(gettempdir())
    # A socket's path may have some 100 characters, of which Spark takes 42: not every machine's temporary directory
    # leaves that many.
    short = temporary if len(str(temporary)) <= LONGEST_SOCKET_DIRECTORY else Path("/tmp")
    with _directory(temporary, "materialize-iceberg-") as files, _directory(short, "mi-") as sockets:
        yield Scratch(files, sockets)


@contextmanager
def _directory(parent: Path, prefix: str) -> Iterator[Path]:
    for other in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(other)
    # Spark may still be writing while its JVM is being killed.
    with TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with (directory / OWNER).open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            yield directory


def _remove_if_abandoned(directory: Path) -> None:
    """A killed session's spool would fill the disk one crash after the other."""
    with suppress(OSError):  # somebody else's, or gone meanwhile
        if time.time() - directory.stat().st_mtime < MINUTE:
            return
        with (directory / OWNER).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
