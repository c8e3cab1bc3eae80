"""Lists of data files that are too long for the connector state: an object beside the files holds the list, and the
state names this object."""

from typing import Final

import msgspec
from pyiceberg.io import FileIO

from connector.host.errors import UserError
from connector.model.state import DataFile, FileList
from connector.storage import storage_errors

# The pending commits of all tables and shards must fit into one message of 64 MiB.
LONGEST_IN_STATE: Final = 64 << 10  # bytes

SUFFIX: Final = "-files.json"


def is_too_long(files: tuple[DataFile, ...]) -> bool:
    """Whether the list of these files must be kept outside the state."""
    return len(msgspec.json.encode(files)) > LONGEST_IN_STATE


def write(io: FileIO, location: str, files: tuple[DataFile, ...]) -> FileList:
    """Write a list of files. It is durable when this returns."""
    with storage_errors.translate_errors(location), io.new_output(location).create() as stream:
        stream.write(msgspec.json.encode(files))
    return FileList(location, len(files), sum(file.rows for file in files), sum(file.size for file in files))


def files_of(io: FileIO, files: tuple[DataFile, ...] | FileList) -> tuple[DataFile, ...]:
    """Return the files, read from their list if there is one. Raises UserError if the list was changed."""
    if not isinstance(files, FileList):
        return files
    with storage_errors.translate_errors(files.location), io.new_input(files.location).open() as stream:
        content = stream.read()
    try:
        return msgspec.json.decode(content, type=tuple[DataFile, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{files.location}: this list of staged files was changed or is damaged ({error}). The {files.rows} rows "
            "in these files stay staged in the task's state: restore the list, or backfill the binding, which starts "
            "with a new table."
        ) from error
