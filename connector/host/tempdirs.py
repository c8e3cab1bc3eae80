"""A session's temporary directories. They are removed when it ends, or by the next session if it was killed."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from tempfile import gettempdir, mkdtemp
from typing import Final

from connector.host.errors import UserError

LONGEST_SOCKET_DIRECTORY: Final = 40  # characters
OWNER: Final = "owner"  # a file in the directory, locked while its session runs
MINUTE: Final = 60.0  # seconds: a newer directory may not be locked yet


@dataclass(frozen=True)
class TemporaryDirectories:
    """The directories of one session."""

    files: Path  # holds the spool
    sockets: Path


def temporary_directory() -> Path:
    """Return where temporary directories are made. Without this, Python would silently use another place if TMPDIR
    cannot be used."""
    with translate_disk_errors("directory"):
        return Path(os.environ.get("TMPDIR") or gettempdir()).absolute()


def advise(error: OSError) -> str:
    """Return what to change after a temporary file of a session could not be written."""
    if error.errno == errno.ENOENT:
        return (
            "Something has removed the session's temporary files, such as a job that removes old files. Let it leave "
            "out the directories `materialize-iceberg-*` and `mi-*`."
        )
    if error.errno == errno.EROFS:
        return "Find out why the disk is read-only now, or set TMPDIR to a directory on another disk."
    return _advise(error, "Make room, or set TMPDIR to a directory on a larger disk.")


def _advise(error: OSError, otherwise: str) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the hard limit of open files (`ulimit -Hn`, or `--ulimit nofile` of Docker)."
    if error.errno == errno.EFBIG:
        return "Raise the limit of the size of a file (`ulimit -f`)."
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # of file systems of a network
        return "Its file system has no locks. Set TMPDIR to a directory on a local disk."
    return otherwise


@contextmanager
def translate_disk_errors(what: str) -> Iterator[None]:
    """Translate the errors of making something temporary."""
    try:
        yield
    except OSError as error:
        advice = _advise(error, "Make room there, or set TMPDIR to a directory that can be written to.")
        raise UserError(f"no temporary {what} can be made: {error.strerror or error}. {advice}") from error


@contextmanager
def make_directories() -> Iterator[TemporaryDirectories]:
    """Make a session's directories, and remove them at the end."""
    temporary = temporary_directory()
    if "," in str(temporary):
        raise UserError(
            f"TMPDIR is {temporary}: Spark would take it for several directories, because of the comma. Choose another "
            "directory."
        )
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
        directory = Path(mkdtemp(prefix=prefix, dir=parent))
    try:
        with _own(directory):
            yield directory
    finally:
        _remove(directory)


@contextmanager
def _own(directory: Path) -> Iterator[None]:
    """Keep the directory from being removed by other sessions, and by systemd-tmpfiles, when its files are old."""
    with ExitStack() as resources:
        with translate_disk_errors(f"file in {directory.parent}"):
            owner = resources.enter_context((directory / OWNER).open("w"))
            fcntl.flock(owner, fcntl.LOCK_EX)
            descriptor = os.open(directory, os.O_RDONLY)
            resources.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def _remove_if_abandoned(directory: Path) -> None:
    """Remove the directory of a killed session. Otherwise the spools of killed sessions would fill the disk."""
    with suppress(OSError):  # in use, owned by another user, or already removed
        found = directory.lstat()
        # In a shared directory, another user may have put a link there, or may exchange the directory for one.
        if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        # A clock that was ahead may have dated it.
        if abs(time.time() - found.st_mtime) < MINUTE:
            return
        with (directory / OWNER).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a session's directory, and its owner file last: without it, no session removes the rest. Something may be
    left if this process is killed, or if Spark still writes while its JVM is being killed."""
    owner = directory / OWNER
    with suppress(OSError):
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != owner:
                path.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        with suppress(OSError):
            owner.touch()
