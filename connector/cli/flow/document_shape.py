"""Infers the shape of documents from the documents themselves: the types of each location, and their formats."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final

from connector.cli.flow.shapes import KINDS, NOTHING, Shape, name_type
from protocol.flow import Json, StringInference

_TIME: Final = r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
_DATE: Final = r"\d{4}-\d\d-\d\d"


def _is_date(text: str) -> bool:
    return re.fullmatch(_DATE, text, re.ASCII) is not None and _is_read_by(date.fromisoformat, text)


def _is_date_time(text: str) -> bool:
    has_form = re.fullmatch(f"{_DATE}[Tt ]{_TIME}", text, re.ASCII | re.IGNORECASE)
    return has_form is not None and _is_read_by(datetime.fromisoformat, text.upper())


def _is_time(text: str) -> bool:
    return re.fullmatch(_TIME, text, re.ASCII | re.IGNORECASE) is not None and _is_date_time(f"2000-01-01T{text}")


def _is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text, re.ASCII | re.IGNORECASE) is not None


def _is_read_by(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


# Numbers in strings are not a format here: a postal code that begins with 0 is no number.
FORMATS: Final = {"date-time": _is_date_time, "date": _is_date, "time": _is_time, "uuid": _is_uuid}


@dataclass
class _Location:
    """All values at one location of the documents that were read."""

    kinds: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None  # that all strings have; None if there was no string
    objects: int = 0
    count: int = 0  # of values
    properties: "dict[str, _Location]" = field(default_factory=dict)

    def add(self, value: Json) -> None:
        self.count += 1
        match value:
            case dict():
                self.objects += 1
                self.kinds |= KINDS["object"]
                for name, member in value.items():
                    self.properties.setdefault(name, _Location()).add(member)
            case str():
                self.kinds |= KINDS["string"]
                formats = FORMATS.keys() if self.formats is None else self.formats
                self.formats = frozenset(name for name in formats if FORMATS[name](value))
            case _:
                self.kinds |= KINDS[name_type(value)]

    def make_shape(self) -> Shape:
        return Shape(
            self.kinds,
            {name: inner.make_shape() for name, inner in self.properties.items()},
            frozenset(name for name, inner in self.properties.items() if inner.count == self.objects),
            string=StringInference(format=next((name for name in FORMATS if name in (self.formats or ())), "")),
        )


def infer_document_shape(documents: Iterable[Json]) -> Shape:
    """Infer the shape that all documents have. A location is required if each object there has a value for it."""
    root = _Location()
    for document in documents:
        root.add(document)
    return root.make_shape() if root.count else NOTHING
