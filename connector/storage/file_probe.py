"""Whether files can be written, read and deleted at a place, with the very client that writes the tables' files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyarrow.fs import FileSelector
from pyiceberg.io import load_file_io

from connector.host.errors import ConnectorError, UserError, all_of
from connector.storage.file_io import StoreFileIO
from connector.storage.probe_object import CONTENT, is_abandoned, new_name
from connector.storage.storage_errors import translate_errors


def probe_location(location: str, properties: Mapping[str, str]) -> None:
    """Write, read and delete a file there; then delete what killed probes have left there."""
    io = load_file_io(dict(properties), location)
    assert isinstance(io, StoreFileIO), "the properties name it"
    probe = _Probe(io, location)
    file = f"{location}/{new_name()}"
    probe.write(file)
    errors = [error for use in (probe.read_back, probe.delete) if (error := _error_of(use, file))]
    if errors:
        raise all_of(errors)
    with suppress(OSError, ConnectorError):  # keys that may not list may still write
        for find_abandoned in probe.find_abandoned():
            probe.delete(find_abandoned)


def _error_of(use: Callable[[str], None], file: str) -> ConnectorError | None:
    try:
        use(file)
    except ConnectorError as error:
        return error
    return None


@dataclass(frozen=True)
class _Probe:
    io: StoreFileIO
    location: str

    def write(self, file: str) -> None:
        with translate_errors(self.location), self.io.new_output(file).create(overwrite=True) as stream:
            stream.write(CONTENT)

    def read_back(self, file: str) -> None:
        with translate_errors(self.location), self.io.new_input(file).open() as stream:
            content = stream.read()
        if content != CONTENT:
            raise UserError(f"{file}: what was written is not what is read. Check /storage.")

    def delete(self, file: str) -> None:
        with translate_errors(self.location):
            self.io.delete(file)

    def find_abandoned(self) -> Iterator[str]:
        """What killed probes have left there."""
        scheme, netloc, root = self.io.parse_location(self.location, self.io.properties)
        for found in self.io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(root)):
            if found.mtime and is_abandoned(found.base_name, found.mtime):
                yield f"{self.location}/{found.base_name}"
