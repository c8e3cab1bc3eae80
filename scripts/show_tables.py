"""Shows the tables of an embedded catalog, read with PyIceberg alone: schema, snapshots, some rows."""

import shutil
import sys
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
        [(str(f.field_id), f.name, str(f.field_type), "required" if f.required else "") for f in fields],
    )
    yield ""
    yield from aligned(
        ("snapshot", "committed (UTC)", "files added", "rows added", "rows"),
        [
            (
                str(snapshot.snapshot_id),
                f"{datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}",
                *(_total(snapshot, name) for name in ("added-data-files", "added-records", "total-records")),
            )
            for snapshot in snapshots[-SNAPSHOTS:]
        ],
    )
    yield ""
    scanned = table.scan(limit=ROWS).to_arrow()
    yield from aligned(scanned.column_names, [[_cell(value) for value in row.values()] for row in scanned.to_pylist()])


def how_to_open(warehouse: Path, table: Table) -> Iterable[str]:
    name = ".".join(table.name())
    yield "Open them yourself, here " + name + ":"
    yield f"  PyIceberg  SqlCatalog('local', uri='sqlite:///{warehouse}/catalog.db').load_table({name!r}).scan().to_arrow()"
    yield f"  DuckDB     INSTALL iceberg; LOAD iceberg; SELECT * FROM iceberg_scan('{table.metadata_location}');"
    yield f"  Spark      a JdbcCatalog with uri=jdbc:sqlite:{warehouse}/catalog.db (README.md has all its settings)"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Columns side by side: as many as the terminal is wide."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    room, shown = shutil.get_terminal_size((140, 24)).columns, 0
    while shown < len(widths) and (room := room - widths[shown] - 2) >= 0:
        shown += 1
    more = f"  … {len(header) - shown} more" if shown < len(header) else ""
    for row in (header, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row[:shown], widths[:shown], strict=True))
        yield "  " + (line + more).rstrip()
        more = ""


def _total(snapshot: Snapshot | None, name: str) -> str:
    """A number of a snapshot's summary."""
    summary = snapshot and snapshot.summary
    return (summary[name] if summary else None) or ""


def _cell(value: object) -> str:
    text = "" if value is None else str(value).replace("\n", "⏎")
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


if __name__ == "__main__":
    show_tables(Path(sys.argv[1]).resolve())
