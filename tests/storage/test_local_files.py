"""Files on a local disk: nothing names a file that a loss of power could leave empty, or without its directory."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from stat import S_ISDIR
from typing import Final, TypeAlias

import pytest
from pyiceberg.catalog import Catalog

from connector.iceberg.catalogs.opening import open_catalog
from connector.storage.file_io import LARGEST_HELD, create_file, open_file_io, write_small_file
from iceberg.catalog_configs import local
from support.bindings import PATH
from support.planned_patch import PlannedPatch
from support.rows.staged_files import land
from support.tables.local_tables import ID_ONLY

IO: Final = open_file_io({})
Synced: TypeAlias = dict[tuple[int, int], int]  # the size of each file and directory when it was written to the disk


@pytest.fixture
def synced(monkeypatch: PlannedPatch) -> Synced:
    """What was written to the disk, by device and inode."""
    sizes: Synced = {}
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        status = os.fstat(descriptor)
        sizes[status.st_dev, status.st_ino] = status.st_size

    monkeypatch.setattr(os, "fsync", note)
    return sizes


def is_durable(path: Path, synced: Synced) -> bool:
    status = path.stat()
    return (status.st_dev, status.st_ino) in synced and (
        path.is_dir() or synced[status.st_dev, status.st_ino] == status.st_size
    )


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_a_small_file_is_durable_once_it_is_written(tmp_path: Path, synced: Synced, scheme: str) -> None:
    file = tmp_path / "of a table" / "data" / "rows"
    write_small_file(IO, f"{scheme}{file}", b"rows")
    assert file.read_bytes() == b"rows"
    assert all(is_durable(path, synced) for path in (file, file.parent, file.parent.parent, tmp_path))


@pytest.mark.parametrize("pieces", [1, 2], ids=["small", "large"])
def test_a_stream_is_durable_once_it_is_closed(tmp_path: Path, synced: Synced, pieces: int) -> None:
    file = tmp_path / "rows"
    with closing(create_file(IO, f"file://{file}")) as stream:
        for _ in range(pieces):
            stream.write(bytes(LARGEST_HELD))
    assert file.stat().st_size == pieces * LARGEST_HELD
    assert all(is_durable(path, synced) for path in (file, tmp_path))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(local(tmp_path)) as catalog:
        yield catalog


def test_all_files_of_a_committed_transaction_are_durable(catalog: Catalog, synced: Synced) -> None:
    catalog.create_namespace("shop")
    table = catalog.create_table(PATH, ID_ONLY)
    land(catalog, 1, 2)
    land(catalog, 3)
    written = [*Path(table.location().removeprefix("file://")).rglob("*")]
    assert len([path for path in written if path.is_file()]) == 3 + 2 * 3, "metadata; files, manifests and their lists"
    assert [path for path in written if not is_durable(path, synced)] == []


def test_the_local_catalog_works_where_a_directory_cannot_be_synced(tmp_path: Path, monkeypatch: PlannedPatch) -> None:
    """Some disks on a network refuse it. SQLite would take its commits for failed then."""
    sync = os.fsync

    def sync_files_only(descriptor: int) -> None:
        if S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_files_only)
    with open_catalog(local(tmp_path)) as catalog, catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2, "FULL, which is SQLite's default"
        catalog.create_namespace("shop")
        catalog.create_table(PATH, ID_ONLY)
        land(catalog, 1)


def test_a_commit_of_the_local_catalog_is_durable_once_it_is_answered(catalog: Catalog) -> None:
    """Also without the file that SQLite deletes to commit. It would undo the commit if it came back."""
    engine = catalog.engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3, "EXTRA: the directory, too"
