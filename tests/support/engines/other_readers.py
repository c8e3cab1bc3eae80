"""Readers in processes of their own: ClickHouse and Daft with their own packages, PyIceberg without the connector."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ipc
from pyiceberg.table import Table

from support.jars import leave_out
from support.repository import REPOSITORY

ENGINES: Final = ("clickhouse", "daft")
PROGRAM: Final = REPOSITORY / "tests" / "readers" / "read_with.py"


def read_with(engine: str, tables: Sequence[Table], directory: Path) -> list[pa.Table | str]:
    """Each table's rows, or why the engine refuses the table. Without its parts, the test is left out."""
    python = _find_python() if engine in ENGINES else sys.executable
    files = [directory / f"{engine}-{number}.arrow" for number in range(len(tables))]
    pairs = [
        part
        for table, file in zip(tables, files, strict=True)
        for part in (table.metadata_location.removeprefix("file://"), str(file))
    ]
    # ClickHouse only reads files below the working directory.
    command = [python, str(PROGRAM), engine, *pairs]
    answer = subprocess.run(command, cwd="/", check=True, stdout=subprocess.PIPE, text=True)
    errors = [json.loads(line) for line in answer.stdout.splitlines()]
    return [error or _read(file) for error, file in zip(errors, files, strict=True)]


def _find_python() -> str:
    environment = REPOSITORY / ".cache" / "readers"
    if not (environment / "complete").exists():
        leave_out("needs ClickHouse and Daft: run scripts/setup --all-tests")
    return str(environment / "bin" / "python")


def _read(file: Path) -> pa.Table:
    with ipc.open_file(file) as rows:
        return rows.read_all()
