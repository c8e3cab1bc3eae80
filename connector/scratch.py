"""A session's temporary directories: removed when it ends, or by the next session where it was killed."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from connector.errors import UserError

LONGEST_SOCKET_DIRECTORY: Final = 40  # characters
OWNER: Final = "owner"  # a file that the living owner of a directory has locked
MINUTE: Final = 60.0  # seconds: a younger directory may not have been locked yet


@dataclass(frozen=True)
class Scratch:
    """Where a session keeps what does not outlive it."""

    files: Path  # may grow to the size of the spool
    sockets: Path


def temporary_directory() -> Path:
    """Where temporary directories are made. Python would quietly take another one where TMPDIR cannot be used."""
    with making("directory"):
        return Path(os.environ.get("TMPDIR") or gettempdir())


@contextmanager
def making(what: object) -> Iterator[None]:
    """For making something temporary: what stands in the way becomes an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"no temporary {what} can be made: {error.strerror or error}. Make room there, or set TMPDIR to a directory "
            "that can be written to."
        ) from error


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Directories that are removed in the end."""
    temporary = temporary_directory()
    # A socket's path may have some 100 characters, of which Spark takes 42: not every machine's temporary directory
    # leaves that many.
    short = temporary if len(str(temporary)) <= LONGEST_SOCKET_DIRECTORY else Path("/tmp")
    with _directory(temporary, "materialize-iceberg-") as files, _directory(short, "mi-") as sockets:
        yield Scratch(files, sockets)


@contextmanager
def _directory(parent: Path, prefix: str) -> Iterator[Path]:
    for other in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(other)
    with making(f"directory in {parent}"):
        # Spark may still be writing while its JVM is being killed.
        made = TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    with made as name:
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
