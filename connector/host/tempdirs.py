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

from connector.host.errors import UserError

LONGEST_SOCKET_DIRECTORY: Final = 40  # characters
OWNER: Final = "owner"  # a file that the living owner of a directory has locked
MINUTE: Final = 60.0  # seconds: a younger directory may not have been locked yet


@dataclass(frozen=True)
class TemporaryDirectories:
    """A session's temporary directories."""

    files: Path  # may grow to the size of the spool
    sockets: Path


def temporary_directory() -> Path:
    """Where temporary directories are made. Python alone would quietly take another place if TMPDIR cannot be used."""
    with translate_disk_errors("directory"):
        return Path(os.environ.get("TMPDIR") or gettempdir())


@contextmanager
def translate_disk_errors(what: object) -> Iterator[None]:
    """For making something temporary: an OSError becomes an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"no temporary {what} can be made: {error.strerror or error}. Make room there, or set TMPDIR to a "
            "directory that can be written to."
        ) from error


@contextmanager
def make_directories() -> Iterator[TemporaryDirectories]:
    """A session's directories, removed when it ends."""
    temporary = temporary_directory()
    # A socket's path is limited to some 100 characters, of which Spark takes 42: too many for some temporary
    # directories.
    short = temporary if len(str(temporary)) <= LONGEST_SOCKET_DIRECTORY else Path("/tmp")
    with _directory(temporary, "materialize-iceberg-") as files, _directory(short, "mi-") as sockets:
        yield TemporaryDirectories(files, sockets)


@contextmanager
def _directory(parent: Path, prefix: str) -> Iterator[Path]:
    for other in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(other)
    with translate_disk_errors(f"directory in {parent}"):
        # Spark may still be writing while its JVM is being killed.
        made = TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    with made as name:
        directory = Path(name)
        with (directory / OWNER).open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            yield directory


def _remove_if_abandoned(directory: Path) -> None:
    """Killed sessions leave their spools, which would fill the disk crash by crash."""
    with suppress(OSError):  # in use, another user's, or gone meanwhile
        if time.time() - directory.stat().st_mtime < MINUTE:
            return
        with (directory / OWNER).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
