"""Files that commands are given."""

import sys
from pathlib import Path

import orjson

from connector.host.errors import UserError
from protocol.flow import Json


def read_json(file: str) -> Json:
    """A file's contents, or with `-` those of stdin."""
    if file == "-" and sys.stdin is None:
        raise UserError("stdin must be open: - says that a file's contents come from it.")
    try:
        return orjson.loads(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{file} is not JSON: {error}.") from error
