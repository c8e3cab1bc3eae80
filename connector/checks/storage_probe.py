"""Checks the storage: writes, reads and deletes a probe file where data files will be.

A probe file is known by its name, so that a later probe can delete the files that killed processes left behind.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from connector.checks.steps import Skipped
from connector.config.catalog import LocalCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.storage import LocalFiles, S3Storage
from connector.host.errors import ConnectorError, UserError, join_errors
from connector.iceberg.catalogs.opening import find_warehouse, translate_errors
from connector.storage import storage_errors, store_properties
from connector.storage.file_access import file_properties, has_sign_in
from connector.storage.file_io import StoreFileIO

CONTENT: Final = b"Written by materialize-iceberg to check that it can write here. This file can be deleted.\n"
NAME_PREFIX: Final = "materialize-iceberg-probe-"
LONGEST_PROBE: Final = timedelta(hours=1)


class Place(Protocol):
    """Where a probe file is tried. All methods raise a ConnectorError that says what to do."""

    @property
    def location(self) -> str:
        """The address that the user knows the place by."""

    @property
    def setting(self) -> str:
        """The setting that is wrong if a file cannot be read back."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, also over one of the same name."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def delete(self, name: str) -> None:
        """Delete a file. Another probe may have deleted it before."""

    def list_files(self, prefix: str) -> Iterable[tuple[str, datetime]]:
        """Return the names of the files that begin with the prefix, and when they were written."""


def probe(config: EndpointConfig, properties: Mapping[str, str]) -> str | Skipped:
    """Try the storage and return the place of the probe file. An error says what failed, why, and what to change.

    `properties` are FileIO properties; the catalog's server may have sent some of them.
    """
    if isinstance(config.catalog, LocalCatalog):
        return _try_directory(find_warehouse(config.catalog), "/catalog/warehouse", partial(translate_errors, config))
    file_access = file_properties(properties)
    root = store_properties.find_root(config)
    if root is None or not has_sign_in(urlsplit(root).scheme, file_access):
        return Skipped("the catalog chooses the location or the credentials of each table")
    match config.storage:
        case None | S3Storage():
            from connector.checks.s3_probe import open_configured_bucket  # boto3 is slow to import

            with open_configured_bucket(config, file_access) as bucket:
                try_place(bucket)
        case LocalFiles(directory):
            translate = partial(storage_errors.translate_errors_of_directory, directory)
            return _try_directory(directory, "/storage/directory", translate)
        case _:
            try_place(_Store(root, StoreFileIO(file_access)))
    return root


def try_place(place: Place) -> None:
    """Write, read and delete a probe file. Then delete the probe files that killed processes left behind."""
    name = new_name()
    place.write(name, CONTENT)
    errors = []
    for use in (partial(_read_back, place, name), partial(place.delete, name)):
        try:
            use()
        except ConnectorError as error:
            errors.append(error)
    if errors:
        raise join_errors(errors)
    with suppress(ConnectorError):  # credentials that may not list may still write
        for other, written_at in place.list_files(NAME_PREFIX):
            if is_abandoned(other, written_at):
                place.delete(other)


def _try_directory(directory: Path, setting: str, translate: Callable[[], AbstractContextManager[None]]) -> str:
    """Try a directory. If it does not exist, try the one that it would be created in: the directory may be mistyped."""
    with translate():
        existing = next(path for path in (directory, *directory.parents) if _exists(path))
    try_place(_Directory(existing, setting, translate))
    return str(directory) if existing == directory else f"{existing}, in which {directory} can be created"


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _read_back(place: Place, name: str) -> None:
    if place.read(name) != CONTENT:
        raise UserError(
            f"{place.location}/{name}: a file was written, but reading it returns something else. Check "
            f"{place.setting}."
        )


def new_name() -> str:
    """Return the name of a new probe file."""
    return f"{NAME_PREFIX}{uuid.uuid4().hex}"


def is_abandoned(name: str, written_at: datetime) -> bool:
    """Whether this is a probe file whose process was killed before it could delete the file."""
    is_probe = re.fullmatch(f"{NAME_PREFIX}[0-9a-f]{{32}}", name)
    return is_probe is not None and datetime.now(UTC) - written_at > LONGEST_PROBE


@dataclass(frozen=True)
class _Directory:
    """A directory, and how the errors of using it are translated."""

    directory: Path
    setting: str
    translate: Callable[[], AbstractContextManager[None]]

    @property
    def location(self) -> str:
        return str(self.directory)

    def write(self, name: str, content: bytes) -> None:
        with self.translate():
            (self.directory / name).write_bytes(content)

    def read(self, name: str) -> bytes:
        with self.translate():
            return (self.directory / name).read_bytes()

    def delete(self, name: str) -> None:
        with self.translate():
            (self.directory / name).unlink(missing_ok=True)  # another probe may have deleted it

    def list_files(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        for file in self.directory.glob(f"{prefix}*"):
            with self.translate():
                written_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            yield file.name, written_at


@dataclass(frozen=True)
class _Store:
    """A store that is opened by the same client as for data files: PyArrow."""

    location: str
    io: StoreFileIO
    setting: str = "/storage"

    def write(self, name: str, content: bytes) -> None:
        file = f"{self.location}/{name}"
        with storage_errors.translate_errors(self.location), self.io.new_output(file).create(overwrite=True) as stream:
            stream.write(content)

    def read(self, name: str) -> bytes:
        file = f"{self.location}/{name}"
        with storage_errors.translate_errors(self.location), self.io.new_input(file).open() as stream:
            return bytes(stream.read())

    def delete(self, name: str) -> None:
        with storage_errors.translate_errors(self.location):
            self.io.delete(f"{self.location}/{name}")

    def list_files(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        from pyarrow.fs import FileSelector

        scheme, netloc, root = self.io.arrow.parse_location(self.location, self.io.properties)
        with storage_errors.translate_errors(self.location):
            files = self.io.arrow.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(root))
        for file in files:
            if file.mtime and file.base_name.startswith(prefix):
                yield file.base_name, file.mtime
