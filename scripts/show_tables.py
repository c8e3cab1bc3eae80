"""Shows the tables of an embedded catalog: schema, snapshots, some rows. It uses only PyIceberg."""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

ROWS: Final = 5
SNAPSHOTS: Final = 5
CELL: Final = 28


def show_tables(warehouse: Path) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    tables = [
        catalog.load_table(name) for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)
    ]
    for table in tables:
        print("\n".join(describe(table)), end="\n\n")
    if tables:
        print("\n".join(how_to_open(warehouse, tables[0])))


def describe(table: Table) -> Iterable[str]:
    snapshots, fields = table.snapshots(), table.schema().fields
    name, rows = ".".join(table.name()), _total(table.current_snapshot(), "total-records") or "0"
    yield f"━━ {name}: {rows} rows, {len(snapshots)} snapshots, {len(fields)} columns"
    yield from aligned(
        ("id", "column", "type", ""),
        [(f.field_id, f.name, f.field_type, "required" if f.required else "") for f in fields],
    )
    yield ""
    yield from aligned(
        ("snapshot", "committed (UTC)", "files added", "rows added", "rows"),
        [
            (
                snapshot.snapshot_id,
                f"{datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}",
                *(_total(snapshot, name) for name in ("added-data-files", "added-records", "total-records")),
            )
            for snapshot in snapshots[-SNAPSHOTS:]
        ],
    )
    yield ""
    scanned = table.scan(limit=ROWS).to_arrow()
    yield from aligned(scanned.column_names, [list(row.values()) for row in scanned.to_pylist()])


def how_to_open(warehouse: Path, table: Table) -> Iterable[str]:
    name = ".".join(table.name())
    yield "Open them yourself, here " + name + ":"
    uri = f"sqlite:///{warehouse}/catalog.db"
    yield f"  PyIceberg  SqlCatalog('local', uri={uri!r}).load_table({name!r}).scan().to_arrow()"
    yield f"  DuckDB     INSTALL iceberg; LOAD iceberg; SELECT * FROM iceberg_scan('{table.metadata_location}');"
    yield f"  Spark      a JdbcCatalog with uri=jdbc:sqlite:{warehouse}/catalog.db (docs/reading.md has all settings)"


def aligned(header: Sequence[object], rows: Sequence[Sequence[object]]) -> Iterable[str]:
    """Yield the lines of a table, with as many columns as fit the width of the terminal."""
    lines = [[_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    room, shown = shutil.get_terminal_size((140, 24)).columns, 0
    while shown < len(widths) and (room := room - widths[shown] - 2) >= 0:
        shown += 1
    more = f"… {len(widths) - shown} more" if shown < len(widths) else ""
    for line in lines:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line[:shown], widths[:shown], strict=True)]
        yield "  " + "  ".join([*cells, more]).rstrip()
        more = ""


def _total(snapshot: Snapshot | None, name: str) -> str:
    """Return a number of a snapshot's summary; "" if it has none."""
    summary = snapshot and snapshot.summary
    return (summary[name] if summary else None) or ""


def _cell(value: object) -> str:
    text = "" if value is None else str(value).replace("\n", "⏎")
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _width(text: str) -> int:
    """Return the width of a text in the terminal. East Asian characters and emoji take two places."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


if __name__ == "__main__":
    show_tables(Path(sys.argv[1]).resolve())
