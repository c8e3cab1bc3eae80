"""Temporary directories come and go with their session."""

import errno
import fcntl
import itertools
import os
import resource
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest

from connector.host.errors import UserError
from connector.host.tempdirs import OWNER, make_directories, translate_disk_errors
from support.snapshots import check_text

SOME_FILES: Final = ("a", "b", "spark/c", "z")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def old_directory(parent: Path) -> Path:
    directory = parent / "materialize-iceberg-old"
    directory.mkdir()
    (directory / OWNER).touch()
    (directory / "spool").write_text("left behind")
    os.utime(directory, (0, 0))
    return directory


def test_they_are_removed_in_the_end() -> None:
    with make_directories() as directories:
        (directories.files / "spool").write_text("rows")
        assert directories.sockets.is_dir()
    assert not directories.files.exists()
    assert not directories.sockets.exists()


def test_nobody_else_can_look_into_them() -> None:
    with make_directories() as directories:
        assert {directory.stat().st_mode & 0o777 for directory in (directories.files, directories.sockets)} == {0o700}


def test_sockets_have_room_for_their_names_however_long_the_temporary_directory_is(temporary: Path) -> None:
    with make_directories() as directories:
        assert directories.files.parent == temporary
        assert len(str(directories.sockets)) < 50


def test_what_a_killed_session_left_is_removed_by_the_next(temporary: Path) -> None:
    abandoned = old_directory(temporary)
    with make_directories():
        assert not abandoned.exists()


def test_what_a_session_could_not_remove_is_removed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Spark that is being killed may still write a file."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with monkeypatch.context() as patched, make_directories() as directories:
        patched.setattr(os, "rmdir", refuse)
    os.utime(directories.files, (0, 0))
    with make_directories():
        assert not directories.files.exists()


def test_what_a_killed_removal_left_is_removed_by_the_next_session(temporary: Path) -> None:
    for removals in range(len(SOME_FILES) + 2):
        session = get_context("fork").Process(target=be_killed_after, args=[removals])
        session.start()
        session.join()
        assert session.exitcode == 0
        left = [*temporary.iterdir()]
        for directory in left:
            os.utime(directory, (0, 0))
        with make_directories():
            assert not [path for directory in left for path in directory.rglob("*")]


def be_killed_after(removals: int) -> None:
    """End this process after so many files were removed of what a session has made."""
    removed = itertools.count()
    with make_directories() as directories:
        for name in SOME_FILES:
            (directories.files / name).parent.mkdir(exist_ok=True)
            (directories.files / name).touch()
        sys.addaudithook(lambda event, _: os._exit(0) if event == "os.remove" and next(removed) == removals else None)


def test_what_a_living_session_holds_is_left_alone(temporary: Path) -> None:
    held = old_directory(temporary)
    with (held / OWNER).open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        with make_directories():
            assert (held / "spool").exists()


def test_systemd_leaves_what_a_living_session_holds_alone() -> None:
    """systemd-tmpfiles removes no old files of a directory that it cannot lock."""
    with make_directories() as directories:
        for directory in (directories.files, directories.sockets):
            descriptor = os.open(directory, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)


def test_what_has_only_just_been_made_is_left_alone(temporary: Path) -> None:
    young = old_directory(temporary)
    os.utime(young)
    with make_directories():
        assert young.exists()


def test_what_a_clock_that_was_ahead_has_dated_is_removed_too(temporary: Path) -> None:
    abandoned = old_directory(temporary)
    in_an_hour = time.time() + 3600
    os.utime(abandoned, (in_an_hour, in_an_hour))
    with make_directories():
        assert not abandoned.exists()


def test_a_link_to_what_has_the_files_of_an_abandoned_directory_is_left_alone(temporary: Path) -> None:
    """In a shared directory, another user may have made it."""
    home = old_directory(temporary).rename(temporary / "home")
    (temporary / "materialize-iceberg-link").symlink_to(home)
    with make_directories():
        assert (home / "spool").exists()


def test_a_directory_of_another_user_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be exchanged for a link while it is being removed. Root has access to it."""
    other = old_directory(temporary)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with make_directories():
        assert (other / "spool").exists()


@pytest.mark.parametrize("where", ["missing", "file", "file/below"])
def test_a_directory_that_cannot_be_made_is_an_error_that_names_tmpdir(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Python itself would take another directory, which may be the small disk that TMPDIR was to avoid."""
    (temporary / "file").touch()
    monkeypatch.setenv("TMPDIR", str(temporary / where))
    with (
        pytest.raises(UserError, match=rf"no temporary directory in {temporary / where} can be made: .* set TMPDIR"),
        make_directories(),
    ):
        pass


def test_a_file_system_without_locks_is_an_error_that_names_tmpdir(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError) as error, make_directories():
        pass
    check_text("machine_errors", "temporary files without locks", str(error.value), {str(temporary): "DIRECTORY"})
    assert [*temporary.iterdir()] == []


def test_a_limit_of_the_size_of_files_is_not_told_as_a_full_disk() -> None:
    with pytest.raises(UserError) as error, translate_disk_errors("file"):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    check_text("machine_errors", "temporary files that may not grow", str(error.value))


def test_what_goes_wrong_with_a_disk_later_is_not_said_of_its_temporary_directory() -> None:
    with pytest.raises(OSError, match="disk full"), make_directories():
        raise OSError("disk full")


def test_too_many_open_files_are_not_told_as_a_full_disk(temporary: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(UserError) as error, translate_disk_errors("file"):
            (temporary / "file").open("w")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    check_text("machine_errors", "too many open files for a temporary one", str(error.value))
