"""The spool: whole lines in blocks, in bounded space."""

import errno
import os
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from connector.host.errors import RetryableError
from connector.spark.blocks.spool import Spool
from protocol.request import Store
from support.snapshots import check_text


def run(binding: int, first_line: int, *lines: bytes) -> Store:
    return Store(binding, first_line, len(lines), tuple(line + b"\n" for line in lines))


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", block_size=10, limit=100)


def test_a_blocks_rows_know_their_lines(spool: Spool) -> None:
    spool.add(run(0, 7, b"a", b"b"))
    spool.add(run(0, 9, b"c"))
    spool.add(run(0, 20, b"d"))
    [block] = spool.seal_all()
    assert [block.line_of(row) for row in range(4)] == [7, 8, 9, 20]
    assert len(block.ranges) == 2


def test_files_are_removed_when_their_blocks_are_freed(spool: Spool, tmp_path: Path) -> None:
    [block] = spool.add(run(0, 1, b"0123456789"))
    spool.free(block)
    assert list((tmp_path / "spool").iterdir()) == []
    spool.remove()
    assert not (tmp_path / "spool").exists()


def test_a_directory_that_another_program_has_removed_is_no_error(spool: Spool, tmp_path: Path) -> None:
    """The transaction's rows are in their data files by then."""
    shutil.rmtree(tmp_path / "spool")
    spool.remove()


def test_more_pieces_than_one_write_takes_are_all_written(tmp_path: Path) -> None:
    lines = [str(number).encode() for number in range(3000)]
    spool = Spool(tmp_path / "spool")
    spool.add(run(0, 1, *lines))
    [block] = spool.seal_all()
    assert block.path.read_bytes().split() == lines


@pytest.mark.parametrize("taken", range(13))
def test_what_a_short_write_leaves_is_written_after_it(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    def write_some(descriptor: int, pieces: Sequence[bytes]) -> int:
        return os.write(descriptor, b"".join(pieces)[:taken])

    monkeypatch.setattr(os, "writev", write_some)
    [block] = spool.add(run(0, 1, b"abc", b"defg", b"hi", b""))
    assert block.path.read_bytes() == b"abc\ndefg\nhi\n\n"


def test_strays_take_the_room_that_they_give_back(spool: Spool) -> None:
    [block] = spool.add(run(0, 1, b"x" * 90))
    assert spool.has_room
    strays = spool.write_strays([run(1, 2, b"y" * 20)])
    assert not spool.has_room
    spool.free(strays)
    assert spool.has_room
    spool.free(block)
    spool.add(run(0, 1, b"x" * 100))
    assert not spool.has_room


def test_a_disk_without_room_for_the_directory_is_the_same_error(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match=r"rows cannot be written to .*/missing/spool"):
        Spool(tmp_path / "missing" / "spool")


def test_files_that_another_program_has_removed_are_an_error_that_says_what_to_do(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").rmdir()
    with pytest.raises(RetryableError) as error:
        spool.add(run(0, 1, b"a"))
    check_text("machine_errors", "removed temporary files", str(error.value), {str(tmp_path): "…"})


@pytest.mark.parametrize(
    ("name", "number"), [("a disk that takes no more", errno.ENOSPC), ("a disk that is read-only now", errno.EROFS)]
)
def test_a_disk_that_takes_no_more_is_an_error_that_says_what_to_do(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    def write(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "writev", write)
    with pytest.raises(RetryableError) as error:
        spool.add(run(0, 1, b"a"))
    spool.remove()
    check_text("machine_errors", name, str(error.value), {str(tmp_path): "…"})


@pytest.fixture
def unclosable(spool: Spool) -> Spool:
    """Some disks on a network refuse what was written only when the file is closed."""
    spool.add(run(0, 1, b"a"))
    os.close(spool._open[0].file.fileno())
    return spool


def test_a_disk_that_refuses_rows_when_their_block_is_closed_is_the_same_error(unclosable: Spool) -> None:
    with pytest.raises(RetryableError, match="rows cannot be written to"):
        unclosable.seal_all()


def test_a_block_that_cannot_be_closed_is_removed(unclosable: Spool, tmp_path: Path) -> None:
    unclosable.remove()
    assert not (tmp_path / "spool").exists()


def test_a_block_that_cannot_be_deleted_makes_room(spool: Spool) -> None:
    """Its rows are in a data file, and the session removes the directory."""
    [block] = spool.add(run(0, 1, b"x" * 200))
    assert not spool.has_room
    block.path.unlink()
    block.path.mkdir()  # as little as a read-only disk lets the file be deleted
    spool.free(block)
    assert spool.has_room


def test_a_block_that_cannot_be_read_is_an_error_that_says_what_to_do(spool: Spool, tmp_path: Path) -> None:
    [block] = spool.add(run(0, 1, b"0123456789"))
    assert [*block.read(4)] == [b"0123", b"4567", b"89\n"]
    block.path.unlink()
    with pytest.raises(RetryableError) as error:
        next(block.read(4))
    check_text("machine_errors", "a removed block", str(error.value), {str(tmp_path): "…"})


def test_too_many_open_files_are_an_error_that_says_what_to_do(spool: Spool, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(RetryableError) as error:
            spool.add(run(0, 1, b"a"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    check_text("machine_errors", "too many open files", str(error.value), {str(tmp_path): "…"})
