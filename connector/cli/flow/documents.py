"""Reads documents from a file of JSON lines, with their keys and fields. Each error names the file and the line."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final, NoReturn
from uuid import UUID

from connector.cli.config_files import STDIN
from connector.cli.flow.projections import PUBLISHED_AT
from connector.host.errors import UserError
from connector.host.tempdirs import translate_disk_errors
from protocol.flow import Json, Projection, split_pointer
from protocol.json_values import has_half_pair, is_nested_deeply

TOO_DEEP: Final = "its values are nested too deeply"
_UUID_EPOCH: Final = datetime(1582, 10, 15, tzinfo=UTC)


@dataclass(frozen=True)
class Document:
    """One document: its line in the file, as text and as a value."""

    line: int
    text: bytes
    value: dict[str, Json]


@dataclass(frozen=True)
class DocumentFile:
    """A file with one JSON object in each line. It can be read several times."""

    name: str
    file: BinaryIO

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents. Blank lines are ignored. Raises UserError if a line is not a JSON object."""
        self.file.seek(0)
        for number, line in enumerate(self.file, 1):
            if text := line.strip():
                yield Document(number, text, self._parse(text, number))

    def read_key(self, document: Document, key: Sequence[str]) -> list[Json]:
        """Return the values at the key's locations. Raises UserError if one of them cannot be part of a key."""
        values = [read_location(document.value, ptr) for ptr in key]
        for ptr, value in zip(key, values, strict=True):
            if value is None:
                raise UserError(
                    f"{self.name}, line {document.line}: there is no value at {ptr}, which is part of the key. Every "
                    "document needs one: correct the document, or choose another --key."
                )
            if isinstance(value, float | dict | list):
                raise UserError(
                    f"{self.name}, line {document.line}: the value at {ptr} is part of the key, and "
                    f"{_name_type(value)} cannot be. Choose a --key with integers, strings or booleans."
                )
        return values

    def _parse(self, text: bytes, number: int) -> dict[str, Json]:
        try:
            value = json.loads(text.decode(), parse_float=_parse_float, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            self._refuse(number, f"it is not JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            self._refuse(number, TOO_DEEP)
        except ValueError as error:  # also of bytes that are not UTF-8
            self._refuse(number, f"it is not JSON: {error}")
        if not isinstance(value, dict):
            self._refuse(number, f"it is {_name_type(value)}")
        if is_nested_deeply(value):
            self._refuse(number, TOO_DEEP)
        if b"\\u" in text and has_half_pair(value):
            self._refuse(number, "a string has half of a surrogate pair, which is no character")
        return value

    def _refuse(self, number: int, why: str) -> NoReturn:
        raise UserError(f"{self.name}, line {number}: {why}. Each line must be one document: a JSON object.")


@contextmanager
def open_documents(name: str) -> Iterator[DocumentFile]:
    """Open a file of documents; - reads stdin, and keeps a copy of it on the disk. Raises UserError if that fails."""
    if name == STDIN:
        if sys.stdin is None:
            raise UserError("stdin must be open: the argument - says that the documents come from it.")
        with _copy_stdin() as copy:
            yield DocumentFile("stdin", copy)
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}.") from error
    with file:
        yield DocumentFile(name, file)


def _copy_stdin() -> BinaryIO:
    with translate_disk_errors("copy of stdin"):
        copy = TemporaryFile()  # noqa: SIM115 - the caller closes it
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
    return copy


def read_location(document: Json, ptr: str) -> Json:
    """Return the value at a JSON pointer; None if there is none."""
    for name in split_pointer(ptr):
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    return document


def read_field(document: Json, projection: Projection, now: datetime) -> Json:
    """Return the value of a field; None if there is none. A document without a publication time was published now."""
    value = read_location(document, projection.ptr)
    if projection.ptr != PUBLISHED_AT.ptr or projection.field != PUBLISHED_AT.field:
        return value
    return _find_publication(value, now).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _find_publication(uuid: Json, now: datetime) -> datetime:
    """Return when a document was published: documents of Flow have a UUID of version 1, which says it."""
    try:
        found = UUID(uuid) if isinstance(uuid, str) else None
    except ValueError:
        found = None
    return _UUID_EPOCH + timedelta(microseconds=found.time // 10) if found and found.version == 1 else now


def _parse_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _name_type(value: Json) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a string"
        case float():
            return "a number with a fraction"
        case bool() | None:
            return json.dumps(value)
        case _:
            return "a number"
