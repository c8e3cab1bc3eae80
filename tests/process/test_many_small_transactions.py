"""After many small transactions, a table has as few files as after a few large ones: sessions maintain it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from duckdb import DuckDBPyConnection

from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG
from support.engines.readers import duckdb_connection, readers_catalog
from support.rows.updating_source import UpdatingSource, encode_key, hold_transactions
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime, Session
from support.sessions.scraping import Scraped, read_file

pytestmark = pytest.mark.spark

TRANSACTIONS: Final = 50
KEYS: Final = 400  # of the table with updates
CHANGES: Final = 4  # rows of a transaction, in each table
FILES: Final = 30  # data files, and delete files, that a compacted table may have
MANIFESTS: Final = 30
WRITTEN_AGAIN: Final = 2  # bytes that compaction writes for each byte of the transactions, at most
# seconds: compaction has the lowest priority, so a run takes minutes beside other tests, and rests four times as long
PATIENCE: Final = 900.0
# A data file of a transaction has about 13 kB here.
SETTINGS: Final = {
    "additional_table_properties": {
        "write.target-file-size-bytes": "131072",
        "flow.compaction.bytes-per-commit": "64",  # as the target size, a thousandth of what tables have
        "commit.manifest.min-count-to-merge": "10",
    }
}
USERS: Final = Collection(
    "acmeCo/users",
    "users",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("note", "/note", ("string",)),
    ),
    settings={**SETTINGS, "delta_updates": False},
)
ENTRIES: Final = replace(LEDGER, settings=SETTINGS)
TABLES: Final = ("shop.users", "shop.ledger")


@dataclass(frozen=True)
class Files:
    """How many files the current snapshot of a table has."""

    data: int
    deletes: int

    @classmethod
    def of(cls, directory: Path, name: str) -> "Files":
        table = readers_catalog(directory / "warehouse").load_table(name)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        totals = snapshot.summary.additional_properties
        return cls(int(totals["total-data-files"]), int(totals["total-delete-files"]))

    @property
    def are_few(self) -> bool:
        return self.data <= FILES and self.deletes <= FILES


def make_document(key: Any, version: int) -> Any:
    """Return a document of about a kilobyte, which does not get smaller when it is compressed."""
    return {"id": key[0], "note": f"version {version}: {Random(version).randbytes(500).hex()}"}


def test_maintenance_keeps_the_files_of_many_small_transactions_few(tmp_path: Path) -> None:
    metrics, random = tmp_path / "flow.prom", Random(11)
    config = {**CONFIG, "advanced": {"metrics": {"file": str(metrics)}}}
    runtime = Runtime(tmp_path, (USERS, ENTRIES), config, {"LOG_FORMAT": "json"})
    users, entries = (
        UpdatingSource(collection, make_document, random, binding)
        for binding, collection in enumerate((USERS, ENTRIES))
    )
    with runtime.open(publish=True) as session:
        users.transact(session, [[n] for n in range(KEYS)])
        hold_transactions(session, draw_transactions(users, entries))
        wait_for_compaction(session, tmp_path)
        outcome = session.finish()
    assert outcome.status == 0
    with duckdb_connection(tmp_path / "extensions") as duckdb:
        for source in (users, entries):
            check_rows(tmp_path, source, duckdb)
    for name in TABLES:
        check_table(tmp_path, name)
        check_work(name, outcome.log, read_file(metrics.read_text()))


def draw_transactions(users: UpdatingSource, entries: UpdatingSource) -> list[Any]:
    """Each transaction updates some users, and appends as many entries."""

    def draw(source: UpdatingSource) -> Any:
        return source, [[n] for n in source.random.sample(range(KEYS), CHANGES)]

    return [[draw(users), draw(entries)] for _ in range(TRANSACTIONS)]


def wait_for_compaction(session: Session, directory: Path) -> None:
    """Wait until both tables have few files, which only compaction can bring about now."""
    assert wait_until(lambda: all(Files.of(directory, name).are_few for name in TABLES), PATIENCE), (
        f"{[Files.of(directory, name) for name in TABLES]}\n{session.connector.log}"
    )


def check_rows(directory: Path, source: UpdatingSource, duckdb: DuckDBPyConnection) -> None:
    """DuckDB reads one row for each key, or all rows that were appended."""
    table = readers_catalog(directory / "warehouse").load_table(f"shop.{source.collection.table}")
    rows = duckdb.execute(f"SELECT flow_document FROM iceberg_scan('{table.metadata_location}')").fetchall()
    found = sorted(encode_key(json.loads(document)) for (document,) in rows)
    assert found == sorted(map(encode_key, source.documents.values()))


def check_table(directory: Path, name: str) -> None:
    table = readers_catalog(directory / "warehouse").load_table(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= MANIFESTS


def check_work(name: str, log: str, metrics: Scraped) -> None:
    """Compaction ran, and did not rewrite the same rows too often."""
    compactions = [record for record in map(read_record, log.splitlines()) if is_compaction(record, name)]
    written = sum(metrics.value(f"{kind}_file_bytes_total", table=name) for kind in ("data", "delete"))
    assert compactions
    assert sum(record["newBytes"] for record in compactions) <= WRITTEN_AGAIN * written


def read_record(line: str) -> Mapping[str, Any]:
    record = json.loads(line) if line.startswith("{") else {}
    assert isinstance(record, dict)
    return record


def is_compaction(record: Mapping[str, Any], name: str) -> bool:
    return record.get("event") == "compacted" and record["table"] == name
