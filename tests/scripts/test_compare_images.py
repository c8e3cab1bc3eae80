"""Two file systems are the same but for what was written at another time."""

import io
import tarfile

import pytest

from compare_images import find_differing, read_entries


def archive(
    *, name: str = "etc/motd", content: bytes = b"hello", mode: int = 0o644, uid: int = 0, at: int = 1
) -> io.BytesIO:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.uid, member.mtime = len(content), mode, uid, at
        tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("motd")
        link.type, link.linkname = tarfile.SYMTYPE, name
        tar.addfile(link)
    written.seek(0)
    return written


def test_another_time_is_no_difference() -> None:
    assert find_differing(dict(read_entries(archive())), dict(read_entries(archive(at=2)))) == []


@pytest.mark.parametrize(
    ("other", "paths"),
    [
        (archive(content=b"hallo"), ["etc/motd"]),
        (archive(mode=0o600), ["etc/motd"]),
        (archive(uid=1), ["etc/motd"]),
        (archive(name="etc/issue"), ["etc/issue", "etc/motd", "motd"]),
    ],
    ids=["content", "mode", "owner", "name"],
)
def test_what_else_is_different_is_named(other: io.BytesIO, paths: list[str]) -> None:
    assert find_differing(dict(read_entries(archive())), dict(read_entries(other))) == paths
