"""Standard updates, from Load to acknowledge: one row for each key, as every engine reads it."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

from connector.evolution.field_config import DECIMAL_SETTING
from connector.session.upload_interval import QUICK_TRANSACTIONS
from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG, Row, line
from support.engines.readers import duckdb_connection, polars_table, readers_catalog
from support.engines.spark_sql import MetadataFiles
from support.rows.updating_source import UpdatingSource, encode_key, hold_transactions
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text

pytestmark = pytest.mark.spark

STANDARD: Final = {"delta_updates": False}
VERSION: Final = Field("version", "/version", ("integer",))
USERS: Final = Collection(
    "acmeCo/users",
    "users",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("note", "/note", ("string",)),
        VERSION,
    ),
    settings=STANDARD,
)
# A field for each type that a key may have, with values that its column, or a number of Python, cannot tell apart.
PLACES: Final[Sequence[tuple[Field, Sequence[Any]]]] = [
    (Field("whole", "/whole", ("integer",)), [7, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    (
        Field("text", "/at~1in/text", ("string",)),
        ["7", "07", "", "a\0b", "a\0", 'quo"te\\', "\u2028é", "\U0001f600"],
    ),
    (Field("is_test", "/is_test", ("boolean",)), [False, True]),
    (Field("day", "/day", ("string",), string={"format": "date"}), ["2024-02-29", "0001-01-01", "9999-12-31"]),
    (
        Field("at", "/at", ("string",), string={"format": "date-time"}),
        [
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00+00:00",
            "2024-01-01T05:30:00+05:30",
            "2024-01-01T00:00:00.0000001Z",
            "2024-01-01 00:00:00",
        ],
    ),
    (Field("bytes", "/bytes", ("string",), string={"contentEncoding": "base64"}), ["YQ==", "", "AAA="]),
    (Field("code", "/code", ("integer", "string", "boolean")), [7, "7", "07", 2**70, True, "true"]),
    (Field("count", "/count", ("integer", "string"), string={"format": "integer"}), [7, "7", "7.0"]),
    (
        Field("uuid", "/uuid", ("string",), string={"format": "uuid"}),
        ["00000000-0000-4000-8000-0000000000ab", "00000000-0000-4000-8000-0000000000AB"],
    ),
    (
        Field("large", "/large", ("integer",), config={DECIMAL_SETTING: {"precision": 38, "scale": 0}}),
        [2**70, 2**70 + 1, 7],
    ),
]
KEY: Final = tuple(
    Field(each.name, each.ptr, each.types, "MUST", True, each.string, config=each.config) for each, _ in PLACES
)
PLACE: Final = Collection("acmeCo/places", "places", (*KEY, VERSION), settings=STANDARD)
SEARCH_ALL: Final = {"disableLoadOptimization": True}
FEW_TRANSACTIONS: Final = 6
MANY_TRANSACTIONS: Final = 100


def make_user(key: Any, version: int) -> Any:
    return {"id": key[0], "note": f"version {version} of {key[0]}", "version": version}


def make_place(key: Any, version: int) -> Any:
    parts = dict(zip((each.name for each, _ in PLACES), key, strict=True))
    return {**parts, "at/in": {"text": parts.pop("text")}, "version": version}


def make_entry(key: Any, version: int) -> Any:
    return {"id": key[0], "note": f"version {version}"}


def list_places(random: Random) -> list[Any]:
    """Keys that differ in one part from a key that all have in common, and others."""
    values = [some for _, some in PLACES]
    first = [each[0] for each in values]
    near = [[*first[:place], value, *first[place + 1 :]] for place, some in enumerate(values) for value in some[1:]]
    others = random.sample([list(each) for each in itertools.product(*(some[:2] for some in values))], 100)
    return [*{encode_key(key): key for key in (first, *near, *others)}.values()]


def read_documents(directory: Path, name: str, spark_files: MetadataFiles) -> Iterator[tuple[str, list[Any]]]:
    """Yield each reader, and the documents of a table as it reads them."""
    table = readers_catalog(directory / "warehouse").load_table(f"shop.{name}")
    yield "PyIceberg", table.scan(selected_fields=("flow_document",)).to_arrow()["flow_document"].to_pylist()
    yield "polars", polars_table(table.metadata_location, {}, reader=None)["flow_document"].to_pylist()
    with duckdb_connection(directory / "extensions") as duckdb:
        rows = duckdb.execute(f"SELECT flow_document FROM iceberg_scan('{table.metadata_location}')").fetchall()
        yield "DuckDB", [document for (document,) in rows]
    with spark_files.table(table.metadata_location) as registered:
        [found] = spark_files.spark.rows(f"SELECT flow_document FROM {registered}")
    yield "Spark", [row["flow_document"] for row in found]


def assert_table_is(directory: Path, source: UpdatingSource, spark_files: MetadataFiles) -> None:
    expected = sorted(map(encode_key, source.documents.values()))
    for reader, documents in read_documents(directory, source.collection.table, spark_files):
        assert sorted(encode_key(json.loads(document)) for document in documents) == expected, reader


def documents_of(directory: Path) -> list[Any]:
    """The documents of the users, as PyIceberg reads them."""
    table = readers_catalog(directory / "warehouse").load_table("shop.users")
    documents = table.scan().to_arrow()["flow_document"].to_pylist()
    return sorted(map(json.loads, documents), key=lambda document: document["id"])


@pytest.mark.parametrize(
    ("packed", "hard_delete", "transactions"),
    [
        # Plain lines and deleted documents that are kept are in the conversations, too.
        pytest.param(False, False, FEW_TRANSACTIONS, id="plain, kept", marks=pytest.mark.slow),
        pytest.param(True, True, FEW_TRANSACTIONS, id="packed, hard delete"),
        pytest.param(False, True, MANY_TRANSACTIONS, id="plain, hard delete, many", marks=pytest.mark.slow),
        pytest.param(True, False, MANY_TRANSACTIONS, id="packed, kept, many", marks=pytest.mark.slow),
    ],
)
def test_random_updates_leave_one_row_for_each_key(
    tmp_path: Path, spark_files: MetadataFiles, packed: bool, hard_delete: bool, transactions: int
) -> None:
    random = Random(7)
    runtime = Runtime(tmp_path, (USERS, LEDGER, PLACE), {**CONFIG, "hard_delete": hard_delete})
    runtime.apply()
    users, entries, places = (
        UpdatingSource(collection, make, random, binding, hard_delete, packed)
        for binding, (collection, make) in enumerate([(USERS, make_user), (LEDGER, make_entry), (PLACE, make_place)])
    )
    keys = list_places(random)

    def change() -> Any:
        return [
            (users, [[n] for n in random.sample(range(3000), random.choice((0, 1, 100, 1000)))]),
            (entries, [[n] for n in random.sample(range(9), 2)]),
            (places, random.sample(keys, random.randint(0, len(keys)))),
        ]

    for _ in range(2):
        with runtime.open() as session:
            hold_transactions(session, [change() for _ in range(transactions // 2)], deleted=0.2)
            assert session.finish().status == 0
    for source in (users, entries, places):
        assert_table_is(tmp_path, source, spark_files)


@pytest.mark.slow  # the crash scenarios update a table, too, and all engines read it
def test_a_transaction_that_was_staged_is_finished_by_the_next_process(
    tmp_path: Path, spark_files: MetadataFiles
) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        users.transact(session, [[n] for n in range(10)])
    with runtime.open() as session:
        users.stage(session, [[n] for n in range(5, 15)])
        session.start_commit()
        session.connector.kill()
    with runtime.open() as session:
        users.transact(session, [[n] for n in range(8, 20)])
        assert session.finish().status == 0
    assert_table_is(tmp_path, users, spark_files)


def test_rows_of_other_writers_are_updated_and_a_key_with_several_gets_one(tmp_path: Path) -> None:
    """Before the task began, and while it runs."""
    (tmp_path / "warehouse").mkdir()
    catalog = readers_catalog(tmp_path / "warehouse")
    catalog.create_namespace("shop")
    columns = pa.schema([("flow_document", pa.string()), ("id", pa.int64())])
    rows = [{"id": n, "flow_document": json.dumps({"id": n, "old": n}, indent=1)} for n in (1, 1, 2, 3, 3)]
    theirs = catalog.create_table("shop.users", columns)
    theirs.append(pa.Table.from_pylist(rows, columns))
    runtime = Runtime(
        tmp_path, (USERS,), {**CONFIG, "advanced": {"feature_flags": "allow_existing_tables_for_new_bindings"}}
    )
    users = UpdatingSource(USERS, make_user, Random(1))
    users.documents = {encode_key([n]): {"id": n, "old": n} for n in (1, 2, 3)}
    with runtime.start(publish=True) as session:
        assert session.opened() == SEARCH_ALL
        session.acknowledge()
        users.transact(session, [[1], [4]])
        newer = {"id": 2, "old": 22}
        theirs.refresh().append(pa.Table.from_pylist([{"id": 2, "flow_document": json.dumps(newer)}], columns))
        users.documents[encode_key([2])] = newer
        users.transact(session, [[2], [5]])
        assert session.finish().status == 0
    found = documents_of(tmp_path)
    assert [document["id"] for document in found] == [1, 2, 3, 3, 4, 5], "a key that was not updated has its rows"
    assert all(encode_key(document) == encode_key(users.documents[encode_key([document["id"]])]) for document in found)


def test_loads_of_many_keys_wait_for_an_acknowledgement_that_is_held_back(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS,), {**CONFIG, "upload_interval": "PT4H"})
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        for _ in range(QUICK_TRANSACTIONS):
            users.transact(session, [[0]])
        users.stage(session, [[n] for n in range(30_000)])
        session.start_commit()
        session.send_acknowledge()
        assert wait_until(lambda: "acknowledgement is held" in session.connector.log)
        session.load(*([n] for n in range(200_000)))
        assert not session.connector.has_answered()
        session.connector.send(line("flush", {}))
        session.acknowledged()
        loaded = [session.connector.expect("loaded")["doc"]["id"] for _ in range(30_000)]
        assert sorted(loaded) == [*range(30_000)]
        session.connector.expect("flushed")


def test_a_table_whose_state_key_began_with_rows_is_searched_for_all_keys(tmp_path: Path) -> None:
    flags = {"advanced": {"feature_flags": "retain_existing_data_on_backfill"}}
    runtime = Runtime(tmp_path, (USERS,), {**CONFIG, **flags})
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.start(publish=True) as session:
        assert session.opened() == {}
        session.acknowledge()
        users.transact(session, [[1], [2]])
        assert session.finish().status == 0
    runtime.backfill()
    with runtime.start(publish=True) as session:
        assert session.opened() == SEARCH_ALL
        session.acknowledge()
        users.transact(session, [[2], [3]])
        assert session.finish().status == 0
    assert [document["id"] for document in documents_of(tmp_path)] == [1, 2, 3]
    properties = readers_catalog(tmp_path / "warehouse").load_table("shop.users").properties
    assert any(name.startswith("flow.key.") for name in properties)


UNLOADED: Final = "stored with `exists` without a Load"
TWICE: Final = "a key stored twice"
OTHER: Final = "another key stored than was loaded"


@pytest.mark.parametrize(
    "wrong",
    [
        # tests/session/test_staged_transactions.py compares the same keys without a process.
        pytest.param(UNLOADED, marks=pytest.mark.slow),
        pytest.param(TWICE, marks=pytest.mark.slow),
        pytest.param(OTHER, marks=pytest.mark.slow),
    ],
)
def test_stores_that_do_not_replace_what_was_loaded_are_an_error_and_change_nothing(tmp_path: Path, wrong: str) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        users.transact(session, [[1], [2]])
        before = documents_of(tmp_path)
        session.load(*([] if wrong == UNLOADED else [[1]]))
        session.flush()
        stored = [1, 1] if wrong == TWICE else [2]
        session.store_rows(*(Row(0, make_user([key], 9), exists=True) for key in stored))
        session.send_start_commit()
        outcome = session.connector.wait()
    assert (outcome.status, outcome.kinds[-1]) == (1, "flushed")
    check_text("update_errors", wrong, outcome.last_log_line.partition(" error ")[2])
    assert documents_of(tmp_path) == before


def test_a_key_that_fits_no_column_has_no_row_and_others_are_found(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (PLACE,))
    places = UpdatingSource(PLACE, make_place, Random(1))
    good = list_places(Random(1))[0]
    unfit = [[*good[:3], "yesterday", *good[4:]], [*good[:1], msgspec.Raw(b'"\\ud800"'), *good[2:]]]
    with runtime.open(publish=True) as session:
        places.transact(session, [good])
        session.load(*unfit, good)
        assert [document for _, document in session.flush()] == [*places.documents.values()]
        session.store_rows(Row(0, make_place(good, 2), exists=True), Row(0, make_place(unfit[0], 2)))
        session.send_start_commit()
        outcome = session.connector.wait()
    assert "field 'day'" in outcome.last_log_line


def test_key_columns_may_be_renamed_while_the_task_runs_and_documents_may_not_be_dropped(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        theirs = readers_catalog(tmp_path / "warehouse")
        users.transact(session, [[1], [2]])
        with theirs.load_table("shop.users").update_schema() as update:
            update.set_identifier_fields()
            update.rename_column("id", "key")
        users.transact(session, [[2], [3]])
        assert documents_of(tmp_path) == [users.documents[encode_key([n])] for n in (1, 2, 3)]
        with theirs.load_table("shop.users").update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("flow_document")
        session.load([2])
        session.flush()
        session.store_rows(Row(0, make_user([2], 9), exists=True))
        session.start_commit()
        session.send_acknowledge()
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert "another engine has dropped column" in outcome.last_log_line
    found = theirs.load_table("shop.users").scan().to_arrow().select(["key", "version"]).to_pylist()
    assert {row["key"]: row["version"] for row in found} == {1: 1, 2: 3, 3: 4}


@pytest.mark.slow  # tests/iceberg/test_row_deletes.py names a key column that was dropped
def test_rows_that_another_engine_rewrites_without_their_key_are_an_error(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, (USERS,))
    users = UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        users.transact(session, [[1], [2]])
        theirs = readers_catalog(tmp_path / "warehouse").load_table("shop.users")
        with theirs.update_schema(allow_incompatible_changes=True) as update:
            update.set_identifier_fields()
            update.delete_column("id")
        theirs.overwrite(theirs.scan().to_arrow())
        session.load([2])
        session.connector.send(line("flush", {}))
        outcome = session.connector.wait()
    assert (outcome.status, outcome.kinds[-1]) == (1, "acknowledged")
    check_text("update_errors", "key column dropped", outcome.last_log_line.partition(" error ")[2])


@pytest.mark.slow  # three sessions: the search for all keys has a test above
def test_a_task_that_is_deleted_and_created_again_replaces_the_rows_that_it_stored_before(tmp_path: Path) -> None:
    """Its runtime begins anew, and knows no key that it has stored."""
    users = UpdatingSource(USERS, make_user, Random(1))
    first, again = Runtime(tmp_path, (USERS,)), Runtime(tmp_path, (USERS,))
    first.apply()  # an apply that is repeated finds an empty table
    for runtime, keys, opened in (first, [1, 2], {}), (again, [2, 3], SEARCH_ALL), (again, [1, 4], SEARCH_ALL):
        if not runtime.log:
            runtime.apply()
        with runtime.start() as session:
            assert session.opened() == opened
            session.acknowledge()
            users.transact(session, [[n] for n in keys])
            assert session.finish().status == 0
    assert documents_of(tmp_path) == [users.documents[encode_key([n])] for n in (1, 2, 3, 4)]
