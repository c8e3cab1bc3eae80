"""The lines that show a table to a person: its columns, its snapshots, some rows, and the commands that open it."""

import re
import shlex
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connector.cli.texts.health_texts import format_count
from connector.iceberg.commits.summaries import read_commit_time
from connector.model.table_identifier import TableIdentifier

ROWS: Final = 5
SNAPSHOTS: Final = 5
CELL: Final = 28
SPARK_PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)


def describe_table(table: Table) -> Iterator[str]:
    """Yield the lines that show a table."""
    snapshots, fields = table.snapshots(), table.schema().fields
    counts = ((count_rows(table), "row"), (len(snapshots), "snapshot"), (len(fields), "column"))
    yield f"━━ {TableIdentifier.of(table)}: {', '.join(format_count(*count) for count in counts)}"
    yield from align(
        ("id", "column", "type", ""),
        [(f.field_id, f.name, f.field_type, "required" if f.required else "") for f in fields],
    )
    yield ""
    yield from align(
        ("snapshot", "committed (UTC)", "files added", "rows added", "rows in files"),
        [
            (
                snapshot.snapshot_id,
                f"{read_commit_time(snapshot):%Y-%m-%d %H:%M:%S}",
                *(_read_total(snapshot, name) for name in ("added-data-files", "added-records", "total-records")),
            )
            for snapshot in snapshots[-SNAPSHOTS:]
        ],
    )
    yield ""
    scanned = table.scan(limit=ROWS).to_arrow()
    yield from align(scanned.column_names, [list(row.values()) for row in scanned.to_pylist()])


def count_rows(table: Table) -> int:
    """Return how many rows the current snapshot has, without deleted ones. Its summary counts those, too."""
    return table.scan().count()


def explain_opening(table: Table, catalog_file: Path) -> Iterator[str]:
    """Yield shell commands that open a table of the Local catalog."""
    name, catalog = str(TableIdentifier.of(table)), "spark.sql.catalog.local"
    yield f"Open {name} yourself:"
    uri = f"sqlite:///{catalog_file}"
    opened = f"SqlCatalog('local', uri={uri!r}).load_table({name!r})"
    program = f"from pyiceberg.catalog.sql import SqlCatalog; print({opened}.scan(limit={ROWS}).to_arrow().to_pylist())"
    yield "  PyIceberg (pip install 'pyiceberg[pyarrow,sql-sqlite]'):"
    yield f"    python -c {_quote(program)}"
    metadata = table.metadata_location.removeprefix("file://").replace("'", "''")
    query = f"INSTALL iceberg; LOAD iceberg; SELECT * FROM iceberg_scan('{metadata}') LIMIT {ROWS};"
    yield "  DuckDB:"
    yield f"    duckdb -c {_quote(query)}"
    settings = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.uri": f"jdbc:sqlite:{catalog_file}",
        f"{catalog}.warehouse": str(catalog_file.parent),
    }
    path = ".".join(f"`{part}`" for part in table.name())
    yield "  Spark 4.1:"
    yield f"    spark-sql --packages {','.join(SPARK_PACKAGES)} \\"
    for setting, value in settings.items():
        yield f"      --conf {_quote(f'{setting}={value}')} \\"
    yield f"      -e {_quote(f'SELECT * FROM local.{path} LIMIT {ROWS}')}"


def _quote(argument: str) -> str:
    """Quote an argument of a shell command, in double quotes if that is possible: it often has single ones."""
    quoted = shlex.quote(argument)
    is_plain = not re.search(r'["$`!\\]', argument)
    return f'"{argument}"' if is_plain and quoted != argument else quoted


def align(header: Sequence[object], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, with as many columns as fit the width of the terminal."""
    lines = [[_format_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(map(_measure_width, column)) for column in zip(*lines, strict=True)]
    room, shown = shutil.get_terminal_size((140, 24)).columns, 0
    while shown < len(widths) and (room := room - widths[shown] - 2) >= 0:
        shown += 1
    more = f"… {len(widths) - shown} more" if shown < len(widths) else ""
    for line in lines:
        cells = [
            cell + " " * (width - _measure_width(cell))
            for cell, width in zip(line[:shown], widths[:shown], strict=True)
        ]
        yield "  " + "  ".join([*cells, more]).rstrip()
        more = ""


def _read_total(snapshot: Snapshot, name: str) -> str:
    """Return a number of a snapshot's summary; "" if it has none."""
    return (snapshot.summary[name] if snapshot.summary else None) or ""


def _format_cell(value: object) -> str:
    text = "" if value is None else str(value).replace("\n", "⏎")
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _measure_width(text: str) -> int:
    """Return the width of a text in the terminal. East Asian characters and emoji take two places."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
