"""Bindings and Store lines for tests, in both forms."""

import base64
from collections.abc import Sequence
from typing import Any

import orjson
from pyiceberg.types import LongType, PrimitiveType, StringType, TimestamptzType

from connector.encoding.lines.decoder import Decoded, RowDecoder
from connector.encoding.lines.row_lines import Lines
from connector.model.binding import Binding, Column
from connector.model.table_identifier import TableIdentifier
from fixtures.packed import pack

INDEX = 3
# Of the table of rejected rows.
REJECTED = Binding(
    index=1,
    state_key="state key",
    path=TableIdentifier("shop", "orders__rejected"),
    keys=(),
    values=tuple(
        Column(name, name, number, TimestamptzType() if name == "rejected_at" else StringType(), True)
        for number, name in enumerate(("reason", "field", "key", "document", "rejected_at"), start=1)
    ),
    document=None,
)


def binding(*types: PrimitiveType, required: bool = False, document: bool = False, index: int = INDEX) -> Binding:
    """A long key `id` and the values `value0`, `value1`, … of these types."""
    return Binding(
        index,
        "state key",
        TableIdentifier("shop", "orders"),
        (Column("id", "id", 1, LongType(), True),),
        tuple(Column(f"value{n}", f"value{n}", n + 2, type_, required) for n, type_ in enumerate(types)),
        Column("flow_document", "flow_document", 100, StringType(), required) if document else None,
    )


def plain(key: Any, *values: Any, **other: Any) -> bytes:
    return _line(key=[key], values=list(values), **other)


def packed(key: Any, *values: Any, **other: Any) -> bytes:
    return _line(keyPacked=_base64(pack([key])), valuesPacked=_base64(pack(values)), **other)


def json_line(values: str, key: str = "1") -> bytes:
    """A line whose values are spelled out."""
    return b'{"store":{"binding":%d,"key":[%b],"values":[%b]}}\n' % (INDEX, key.encode(), values.encode())


def packed_line(values: bytes, key: bytes = b"\x15\x01") -> bytes:
    return _line(keyPacked=_base64(key), valuesPacked=_base64(values))


def numbered(content: bytes, first_line: int = 1) -> Lines:
    return Lines(content, lambda place: first_line + place)


def decode(of: Binding, lines: Sequence[bytes], first_line: int = 1) -> Decoded:
    return RowDecoder(of).decode(numbered(b"".join(lines), first_line))


def column(decoded: Decoded, field: str = "value0") -> list[Any]:
    values: list[Any] = decoded.batch.column(field).to_pylist()
    return values


def _line(**fields: Any) -> bytes:
    return orjson.dumps({"store": {"binding": INDEX, **fields}}) + b"\n"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
