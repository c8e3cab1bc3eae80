"""Rows as text for people: every value as JSON."""

from collections.abc import Sequence
from typing import TypeAlias

import orjson

from connector.binding import Binding
from connector.rows.halves import Half
from connector.rows.lines import LooseRow

Texts: TypeAlias = tuple[str, ...]  # in the order of the binding's columns


def row_texts(binding: Binding, rows: Sequence[LooseRow]) -> list[Texts]:
    """The values of each row. All rows have one form; invalid UTF-8 becomes replacement characters."""
    columns = [*Half("key", binding.keys).json_texts(rows), *Half("values", binding.values).json_texts(rows)]
    if binding.document:
        columns.append([bytes(row.doc).decode(errors="replace") or "null" for row in rows])
    return list(zip(*columns, strict=True))


def key_text(binding: Binding, texts: Texts) -> str:
    """The key as it was sent."""
    return f"[{','.join(texts[: len(binding.keys)])}]"


def document_text(binding: Binding, texts: Texts) -> str:
    """The whole row as an object of its fields."""
    members = zip(binding.columns, texts, strict=True)
    return f"{{{','.join(f'{orjson.dumps(column.field).decode()}:{text}' for column, text in members)}}}"
