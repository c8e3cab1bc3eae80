"""What a conversation's tables must hold: a second reading of its Store lines, with the standard library alone.

It shares nothing with the connector, so that a mistake would have to be made twice. Every value is text, one form for
each type: what another engine reads is brought into the same form before it is compared.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
Path: TypeAlias = tuple[str, str]  # namespace, table
Row: TypeAlias = tuple[str | None, ...]  # in the order of the columns


@dataclass(frozen=True)
class ExpectedTable:
    """Columns with their Iceberg types, and the rows of each transaction that has some."""

    columns: Mapping[str, str]
    transactions: list[list[Row]] = field(default_factory=list)
    # With standard updates, the last row of each key, by the key's JSON. Deleted documents keep their rows.
    newest: dict[str, Row] | None = None

    @property
    def rows(self) -> list[Row]:
        if self.newest is not None:
            return [*self.newest.values()]
        return [row for transaction in self.transactions for row in transaction]

    def values(self, column: str) -> list[str | None]:
        position = list(self.columns).index(column)
        return [row[position] for row in self.rows]


def expected_tables(lines: Iterable[bytes]) -> dict[Path, ExpectedTable]:
    """The tables after the whole conversation, whose keys and values are plain."""
    tables: list[ExpectedTable] = []
    paths: list[Path] = []
    for line in filter(bytes.strip, lines):
        ((kind, body),) = _members(line.decode()).items()
        match kind:
            case "open":
                for binding in json.loads(body)["materialization"]["bindings"]:
                    newest: dict[str, Row] | None = None if binding.get("deltaUpdates") else {}
                    tables.append(ExpectedTable(_column_types(binding), newest=newest))
                    paths.append(tuple(binding["resourcePath"]))
            case "flush":
                for table in tables:
                    table.transactions.append([])
            case "store":
                store = _members(body)
                table = tables[int(store.get("binding", "0"))]
                texts = [*_elements(store["key"]), *_elements(store["values"])]
                texts += [store["doc"]] if len(texts) < len(table.columns) else []
                cells = zip(table.columns.values(), texts, strict=True)
                row = tuple(canonical(type_, text) for type_, text in cells)
                table.transactions[-1].append(row)
                if table.newest is not None:
                    table.newest[store["key"]] = row
    for table in tables:
        table.transactions[:] = filter(None, table.transactions)
    return dict(zip(paths, tables, strict=True))


def canonical(type_: str, text: str) -> str | None:
    """A value's JSON text, as a column of this type holds it."""
    if text == "null":
        return None
    return _decimal(text, scale_of(type_)) if type_.startswith("decimal") else CANONICAL[type_](text)


def _column_types(binding: Json) -> dict[str, str]:
    selection = binding["fieldSelection"]
    projections = {projection["field"]: projection for projection in binding["collection"]["projections"]}
    configs = selection.get("fieldConfig", {})
    keys, values = selection["keys"], selection["values"]
    types = {name: column_type(projections[name], True, configs.get(name)) for name in keys}
    types |= {name: column_type(projections[name], False, configs.get(name)) for name in values}
    return {**types, selection["document"]: "string"} if selection.get("document") else types


def column_type(projection: Json, is_key: bool, config: Json) -> str:
    inference = projection["inference"]
    types = set(inference["types"]) - {"null"}
    string = inference.get("string", {})
    string_format = string.get("format", "")
    if config and (config.get("ignoreStringFormat") or config.get("castToString")):
        return "string"
    if config and config.get("decimal"):
        return f"decimal({config['decimal']['precision']}, {config['decimal']['scale']})"
    if not is_key and types <= {"integer", "string"} and INTEGER_FORMAT.fullmatch(string_format):
        return "long"
    if not is_key and types <= {"integer", "number", "string"} and string_format == "number":
        return "double"
    if len(types) > 1:
        return "string"
    (only,) = types
    if only == "string":
        return "binary" if string.get("contentEncoding") == "base64" else STRING_FORMATS.get(string_format, "string")
    return {"boolean": "boolean", "integer": "long", "number": "double"}.get(only, "string")


WIDE: Final = Context(prec=200)
INTEGER_FORMAT: Final = re.compile(r"integer|[us]?int(32|64)")
STRING_FORMATS: Final = {"date": "date", "date-time": "timestamptz"}

_FOUR_CENTURIES: Final = timedelta(days=146_097)  # after which the calendar repeats itself
_DATE_TIME: Final = re.compile(r"(\d{4})(-\d\d-\d\d)[^\d](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d|)", re.ASCII)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_INSTANT: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC) - _EPOCH) // _MICROSECOND


def _boolean(text: str) -> str:
    return text


def _long(text: str) -> str:
    return str(int(Decimal(text.strip('"'))))


def _double(text: str) -> str:
    return repr(float(text.strip('"')))


def scale_of(type_: str) -> int:
    return int(type_.removesuffix(")").rpartition(", ")[2])


def _decimal(text: str, scale: int) -> str:
    """As many digits behind the point as the scale has."""
    unscaled = int(Decimal(text.strip('"')).scaleb(scale, WIDE))
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _string(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _binary(text: str) -> str:
    return b64decode(json.loads(text), validate=True).hex()


def _date(text: str) -> str:
    day: str = json.loads(text)
    return date.min.isoformat() if day.startswith("0000-") else day


def _timestamptz(text: str) -> str:
    """Microseconds since 1970."""
    match = _DATE_TIME.fullmatch(json.loads(text))
    assert match, text
    year, rest, clock, fraction, offset = match.groups()
    # Where an offset may lead out of the years that datetime has, the sum is done four centuries away.
    centuries = 1 if year < "0002" else -1 if year > "9998" else 0
    offset = "+00:00" if offset in ("", "Z", "z") else offset
    moment = datetime.fromisoformat(f"{int(year) + 400 * centuries:04}{rest}T{clock}{offset}")
    instant = (moment - _EPOCH - centuries * _FOUR_CENTURIES) // _MICROSECOND + int((fraction or "0")[:6].ljust(6, "0"))
    return str(min(max(instant, FIRST_INSTANT), LAST_INSTANT))


CANONICAL: Final[Mapping[str, Callable[[str], str]]] = {
    "boolean": _boolean,
    "long": _long,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamptz": _timestamptz,
}

# JSON is cut up here without being decoded: how a number is written, and the white space, are what is compared.
_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"[ \t\r\n]*[,:]?[ \t\r\n]*")


def _members(text: str) -> dict[str, str]:
    texts = list(_texts(text))
    return {json.loads(name): value for name, value in zip(texts[::2], texts[1::2], strict=True)}


def _elements(text: str) -> list[str]:
    return list(_texts(text))


def _texts(text: str) -> Iterator[str]:
    """The text of everything that stands directly in an object or array."""
    text = text.strip()
    position = _after(text, 1)
    while position < len(text) - 1:
        _, end = _DECODER.raw_decode(text, position)
        yield text[position:end]
        position = _after(text, end)


def _after(text: str, position: int) -> int:
    between = _BETWEEN.match(text, position)
    assert between
    return between.end()
