"""Lists of data files that are too long for a message: an object beside the files holds them, and the state names
it."""

from typing import Final

import msgspec
from pyiceberg.io import FileIO

from connector.host.errors import UserError
from connector.model.state import DataFile, FileList
from connector.storage import storage_errors

# The entries of all tables and shards must fit into one message of 64 MiB, with those that wait for failing tables.
LONGEST_IN_STATE: Final = 64 << 10  # bytes

SUFFIX: Final = "-files.json"


def is_too_long(files: tuple[DataFile, ...]) -> bool:
    """Whether the files are to be listed outside the state."""
    return len(msgspec.json.encode(files)) > LONGEST_IN_STATE


def write(io: FileIO, location: str, files: tuple[DataFile, ...]) -> FileList:
    """Return when the list is durable."""
    with storage_errors.translate_errors(location), io.new_output(location).create() as stream:
        stream.write(msgspec.json.encode(files))
    return FileList(location, len(files), sum(file.rows for file in files), sum(file.size for file in files))


def files_of(io: FileIO, files: tuple[DataFile, ...] | FileList) -> tuple[DataFile, ...]:
    """The files themselves, read from their list where there is one. UserError if the list was changed."""
    if not isinstance(files, FileList):
        return files
    with storage_errors.translate_errors(files.location), io.new_input(files.location).open() as stream:
        content = stream.read()
    try:
        return msgspec.json.decode(content, type=tuple[DataFile, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{files.location}: this list of staged files is not as the connector wrote it ({error}). "
            f"The {files.rows} rows in them stay staged in the task's state: put the list back as it was, or backfill "
            "the binding, which begins with a new table."
        ) from error
