"""Standard updates, from Load to acknowledge: one row for each key, as readers see it."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG, Row
from support.readers import duckdb_connection, local_catalog, polars_table
from support.runtime import Runtime
from support.updating_source import UpdatingSource, encode_key

pytestmark = pytest.mark.spark

USERS = Collection(
    "acmeCo/users",
    "users",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("note", "/note", ("string",)),
        Field("version", "/version", ("integer",)),
    ),
    settings={"delta_updates": False},
)
COMPOUND = Collection(
    "acmeCo/visits",
    "visits",
    (
        Field("region", "/region", ("string",), exists="MUST", is_key=True),
        Field("at", "/at", ("string",), exists="MUST", is_key=True, string={"format": "date-time"}),
        Field("code", "/code", ("integer", "string"), exists="MUST", is_key=True),
        Field("is_test", "/is_test", ("boolean",), exists="MUST", is_key=True),
        Field("version", "/version", ("integer",)),
    ),
    settings={"delta_updates": False},
)


def make_user(key: Any, version: int) -> Any:
    return {"id": key[0], "note": f"version {version} of {key[0]}", "version": version}


def make_visit(key: Any, version: int) -> Any:
    return dict(zip(("region", "at", "code", "is_test"), key, strict=True)) | {"version": version}


def read_documents(directory: Path, name: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield each reader, and the documents of a table as it reads them."""
    table = local_catalog(directory / "warehouse").load_table(f"shop.{name}")
    yield "PyIceberg", table.scan(selected_fields=("flow_document",)).to_arrow()["flow_document"].to_pylist()
    yield "polars", polars_table(table.metadata_location, {}, reader=None)["flow_document"].to_pylist()
    with duckdb_connection(directory / "extensions") as duckdb:
        rows = duckdb.execute(f"SELECT flow_document FROM iceberg_scan('{table.metadata_location}')").fetchall()
        yield "DuckDB", [document for (document,) in rows]


def assert_table_is(directory: Path, name: str, source: UpdatingSource) -> None:
    expected = sorted(map(encode_key, source.documents.values()))
    for reader, documents in read_documents(directory, name):
        assert sorted(encode_key(json.loads(document)) for document in documents) == expected, reader


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("hard_delete", [False, True], ids=["kept", "hard delete"])
def test_random_updates_leave_one_row_for_each_key(tmp_path: Path, packed: bool, hard_delete: bool) -> None:
    random = Random(7)
    runtime = Runtime(tmp_path, (USERS, COMPOUND), {**CONFIG, "hard_delete": hard_delete})
    runtime.apply()
    users = UpdatingSource(USERS, make_user, random, hard_delete=hard_delete, packed=packed)
    visits = UpdatingSource(COMPOUND, make_visit, random, binding=1, hard_delete=hard_delete, packed=packed)
    places = [
        [region, at, code, is_test]
        for region in ("eu", "us", "a\\u0000b")
        for at in ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00+00:00", "2025-06-30T12:00:00.5Z")
        for code in (7, "7", "07", 2**70)
        for is_test in (False, True)
    ]
    for _ in range(2):
        with runtime.open() as session:
            for _ in range(12):
                users.transact(session, [[n] for n in random.sample(range(300), random.randint(1, 120))], deleted=0.2)
                visits.transact(session, random.sample(places, random.randint(1, 40)), deleted=0.2)
            assert session.finish().status == 0
    assert_table_is(tmp_path, "users", users)
    assert_table_is(tmp_path, "visits", visits)


def test_the_key_columns_are_the_identifier_fields(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS, COMPOUND))
    runtime.apply()
    catalog = local_catalog(tmp_path / "warehouse")
    assert catalog.load_table("shop.users").schema().identifier_field_names() == {"id"}
    assert catalog.load_table("shop.visits").schema().identifier_field_names() == {"region", "at", "code", "is_test"}


def test_a_transaction_that_was_staged_is_finished_by_the_next_process(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    runtime.apply()
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open() as session:
        users.transact(session, [[n] for n in range(10)])
    with runtime.open() as session:
        users.stage(session, [[n] for n in range(5, 15)])
        session.start_commit()
        session.connector.kill()
    with runtime.open() as session:
        users.transact(session, [[n] for n in range(8, 20)])
        assert session.finish().status == 0
    assert_table_is(tmp_path, "users", users)


def test_a_stored_document_that_was_not_loaded_is_an_error(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    runtime.apply()
    with runtime.open() as session:
        session.flush()
        session.store_rows(Row(0, make_user([1], 1), exists=True))
        session.send_start_commit()
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert "stored 1 with `exists`" in outcome.last_log_line


def test_a_load_of_a_binding_with_delta_updates_is_an_error(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()
    with runtime.open() as session:
        session.load([1])
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert "the runtime must not send load for binding 0, which has delta updates" in outcome.last_log_line
