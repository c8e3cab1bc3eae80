"""Tables of format version 3, through the real process and Spark: rows have ids and keep them, also after a crash."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyiceberg.table import Table

from connector.iceberg.metadata.table_updates import find_next_row_id
from connector.model.table_identifier import TableIdentifier
from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG
from support.engines.readers import polars_table, readers_catalog
from support.rows.updating_source import UpdatingSource, encode_key, hold_transactions
from support.sessions.runtime import LEDGER, Runtime, Session
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import local_catalog

pytestmark = pytest.mark.spark

SETTINGS = {"delta_updates": True, "partition_by": "truncate(100, id)", "on_invalid": "quarantine"}
LEDGERS = [
    replace(LEDGER, settings=SETTINGS),
    replace(LEDGER, name="acmeCo/second", table="second", settings={"delta_updates": True, "format_version": 2}),
]


def table(directory: Path, name: str) -> Table:
    return readers_catalog(directory / "warehouse").load_table(f"shop.{name}")


@pytest.mark.slow  # the next test kills a process, too, and tests/iceberg appends rows with ids
def test_each_row_has_one_id_and_is_there_once(tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    runtime = Runtime(tmp_path, LEDGERS, {**CONFIG, "advanced": {"format_version": 3}})
    with runtime.open(publish=True) as session:
        session.transaction(*({"id": number, "note": "a"} for number in range(250)))
        session.stage_and_die(*({"id": number, "note": "b"} for number in range(250, 300)))
    with runtime.open() as session:
        session.transaction({"id": 300, "note": "c"})
        assert session.finish().status == 0

    ledger = table(tmp_path, "ledger")
    versions = {
        name: table(tmp_path, name).metadata.format_version for name in ("ledger", "ledger__rejected", "second")
    }
    assert versions == {"ledger": 3, "ledger__rejected": 3, "second": 2}
    query = f"SELECT id, _row_id FROM iceberg_scan('{ledger.metadata_location}') ORDER BY id"
    rows = duckdb_reader.sql(query).fetchall()
    assert [number for number, _ in rows] == list(range(301))
    assert {row_id for _, row_id in rows} == set(range(301))
    assert find_next_row_id(ledger) == 301
    assert sorted(polars_table(ledger.metadata_location, {})["id"].to_pylist()) == list(range(301))


KEY = Field("id", "/id", ("integer",), exists="MUST", is_key=True)
# The column of texts has the same value for 7 and "7".
CODE = Field("id", "/id", ("integer", "string"), exists="MUST", is_key=True)
NOTE = Field("note", "/note", ("string",))
BY_HAND = {"additional_table_properties": {**EAGER, "flow.compaction.enabled": "false"}}
UPDATED = [
    Collection("acmeCo/users", "users", (KEY, NOTE), settings={**BY_HAND, "delta_updates": False}),
    Collection("acmeCo/sorted", "sorted", (KEY, NOTE), settings={**BY_HAND, "delta_updates": False, "sort_by": "note"}),
    Collection("acmeCo/codes", "codes", (CODE, NOTE), settings={**BY_HAND, "delta_updates": False}),
]


class UpdatedTable:
    """A table with standard updates, and the ids that its rows had when they were last read."""

    def __init__(self, directory: Path, reader: duckdb.DuckDBPyConnection, source: UpdatingSource) -> None:
        self.source = source
        self.ids: dict[str, int] = {}  # by key
        self.catalog = local_catalog(directory / "warehouse")
        self.path = TableIdentifier("shop", source.collection.table)
        self._reader = reader
        self._seen: set[int] = set()

    def check(self, changed: Sequence[Any] = ()) -> None:
        """A row has the id that it had before, and a new row has one that no other had. Only changed rows have the
        number of the newest snapshot."""
        loaded = self.catalog.load_table(self.path)
        snapshot = loaded.current_snapshot()
        assert snapshot
        query = "SELECT flow_document, _row_id, _last_updated_sequence_number FROM iceberg_scan(?)"
        rows = self._reader.execute(query, [loaded.metadata_location]).fetchall()
        documents = [json.loads(document) for document, _, _ in rows]
        assert sorted(map(encode_key, documents)) == sorted(map(encode_key, self.source.documents.values()))
        ids = {encode_key([each["id"]]): row_id for each, (_, row_id, _) in zip(documents, rows, strict=True)}
        assert len({*ids.values()}) == len(rows), "an id was given twice"
        kept = {key: row_id for key, row_id in self.ids.items() if key in ids}
        assert ids.items() >= kept.items()
        assert self._seen.isdisjoint(row_id for key, row_id in ids.items() if key not in kept)
        self.ids = ids
        self._seen |= {*ids.values()}
        newest = {
            encode_key([each["id"]])
            for each, row in zip(documents, rows, strict=True)
            if row[2] == snapshot.sequence_number
        }
        assert newest == {*map(encode_key, changed)} & ids.keys()


def make_document(key: Any, version: int) -> Any:
    return {"id": key[0], "note": f"version {version} of {key[0]}"}


def test_updated_rows_keep_their_ids(tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    """In data files at once and through sorted runs, before, during and after compactions, and in a staged
    transaction."""
    random = Random(3)
    runtime = Runtime(tmp_path, UPDATED, {**CONFIG, "hard_delete": True, "advanced": {"format_version": 3}})
    sources = [
        UpdatingSource(collection, make_document, random, binding, hard_delete=True)
        for binding, collection in enumerate(UPDATED)
    ]
    tables = [UpdatedTable(tmp_path, duckdb_reader, source) for source in sources]
    numbers = [[number] for number in range(60)]
    codes = [[code] for number in range(20) for code in (number, str(number))]

    def change(session: Session, count: int = 25) -> None:
        changes = [(source, random.sample(codes if source.binding == 2 else numbers, count)) for source in sources]
        hold_transactions(session, [changes], deleted=0.1)
        for each, (_, keys) in zip(tables, changes, strict=True):
            each.check(keys)

    with runtime.open(publish=True) as session:
        for _ in range(4):
            change(session)
        for each in tables:
            assert compact(each.catalog, each.path, partial(change, session, 5)).groups
            each.check()
        for _ in range(2):
            change(session)
        users = sources[0]
        users.stage(session, [[number] for number in range(50, 70)])
        session.start_commit()
        session.connector.kill()
    with runtime.open() as session:
        tables[0].check([[number] for number in range(50, 70)])
        change(session)
        assert session.finish().status == 0
