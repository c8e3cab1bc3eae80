"""Engines that are not ours read, from the tables of the fixture conversations, every row that was stored."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo

from fixtures import all_types, evil_names, group_by, orders, updates
from fixtures.collection import NAMESPACE
from support.engines.canonical_rows import (
    canonical_rows,
    column_types,
    count_in_duckdb,
    in_duckdb,
    read_by_duckdb,
    read_by_polars,
    read_by_spark,
)
from support.engines.other_readers import ENGINES, read_with
from support.engines.spark_sql import IN_ITS_WORKER, SparkSql
from support.rows.conversations import Conversation
from support.rows.expected_rows import ExpectedTable, Row, expected_tables

pytestmark = [
    pytest.mark.spark,
    IN_ITS_WORKER,  # where they are held for other tests
    # The image's answers are the same, and tests/image reads its rows: other engines would find nothing that is new.
    pytest.mark.parametrize("launch", ["process"], indirect=True, scope="session"),
]

TABLES = [
    *(("orders", collection.table) for collection in orders.COLLECTIONS),
    ("all_types", all_types.COLLECTION.table),
    ("packed", all_types.COLLECTION.table),
    *(("updates", collection.table) for collection in updates.COLLECTIONS),
    ("group_by", group_by.COLLECTION.table),
    *(("evil_names", collection.table.lower()) for collection in evil_names.COLLECTIONS),
]
READ_BY_SPARK = ("all_types", "evil_names", "group_by", "updates")  # what is easy to get wrong
each_table = pytest.mark.parametrize(("name", "table_name"), TABLES)
Expected = dict[str, dict[tuple[str, str], ExpectedTable]]


@pytest.fixture(scope="module")
def expected(fixture_conversations: dict[str, Conversation]) -> Expected:
    tables = {
        name: expected_tables(conversation.lines)
        for name, conversation in fixture_conversations.items()
        if name != "packed"
    }
    # Its documents are those of the plain conversation, so its tables must be the same.
    return {**tables, "packed": tables["all_types"]}


def difference(actual: Iterable[Row], expected: Iterable[Row]) -> dict[str, list[Row]]:
    """Some rows that only one side has: a table's rows have no order, and may be equal."""
    found, wanted = Counter(actual), Counter(expected)
    return {
        side: rows for side, rows in [("missing", [*(wanted - found)][:2]), ("extra", [*(found - wanted)][:2])] if rows
    }


def test_every_table_of_the_conversations_is_looked_at(expected: Expected) -> None:
    assert sorted(TABLES) == sorted((name, table) for name, tables in expected.items() for _, table in tables)
    assert all(table.rows for tables in expected.values() for table in tables.values())


@each_table
def test_every_column_has_the_type_of_its_field(
    name: str, table_name: str, fixture_conversations: dict[str, Conversation], expected: Expected
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    assert list(column_types(table).items()) == list(expected[name][NAMESPACE, table_name].columns.items())


@each_table
def test_duckdb_reads_every_row(
    name: str,
    table_name: str,
    fixture_conversations: dict[str, Conversation],
    expected: Expected,
    duckdb_reader: duckdb.DuckDBPyConnection,
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    assert difference(read_by_duckdb(duckdb_reader, table), expected[name][NAMESPACE, table_name].rows) == {}


def test_duckdb_reads_a_directory_only_if_it_may_guess_which_metadata_file_is_the_newest(
    fixture_conversations: dict[str, Conversation],
    expected: Expected,
    duckdb_reader: duckdb.DuckDBPyConnection,
) -> None:
    location = fixture_conversations["group_by"].table(NAMESPACE, group_by.COLLECTION.table).location()
    count = f"SELECT count(*) FROM iceberg_scan('{location.removeprefix('file://')}')"
    with pytest.raises(duckdb.Error, match="no version-hint could be found"):
        duckdb_reader.execute(count)
    duckdb_reader.execute("SET unsafe_enable_version_guessing = true")
    try:
        rows = len(expected["group_by"][NAMESPACE, group_by.COLLECTION.table].rows)
        assert duckdb_reader.execute(count).fetchone() == (rows,)
    finally:
        duckdb_reader.execute("RESET unsafe_enable_version_guessing")


@each_table
def test_polars_reads_every_row(
    name: str, table_name: str, fixture_conversations: dict[str, Conversation], expected: Expected
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    assert difference(read_by_polars(table), expected[name][NAMESPACE, table_name].rows) == {}


@pytest.fixture(scope="module")
def spark_reads(
    fixture_conversations: dict[str, Conversation], expected: Expected, spark_reader: SparkSql
) -> dict[str, list[list[Row]]]:
    """Every table as Spark reads it."""

    def read(name: str) -> list[list[Row]]:
        conversation = fixture_conversations[name]
        tables = [conversation.table(*path) for path in expected[name]]
        return read_by_spark(spark_reader, conversation.warehouse, tables)

    return {name: read(name) for name in READ_BY_SPARK}


@pytest.mark.parametrize("name", READ_BY_SPARK)
def test_spark_with_icebergs_own_runtime_reads_every_row(
    name: str, spark_reads: dict[str, list[list[Row]]], expected: Expected
) -> None:
    for read, wanted in zip(spark_reads[name], expected[name].values(), strict=True):
        assert difference(read, wanted.rows) == {}


@pytest.mark.parametrize("engine", ["pyiceberg", *(pytest.param(each, marks=pytest.mark.slow) for each in ENGINES)])
def test_engines_in_processes_of_their_own_read_every_row(
    engine: str, fixture_conversations: dict[str, Conversation], expected: Expected, tmp_path: Path
) -> None:
    tables = [fixture_conversations[name].table(NAMESPACE, table_name) for name, table_name in TABLES]
    for table, (name, table_name), read in zip(tables, TABLES, read_with(engine, tables, tmp_path), strict=True):
        assert isinstance(read, pa.Table), read
        assert difference(canonical_rows(table, read), expected[name][NAMESPACE, table_name].rows) == {}


@each_table
def test_a_filter_for_the_least_or_greatest_value_of_a_file_finds_its_rows(
    name: str,
    table_name: str,
    fixture_conversations: dict[str, Conversation],
    expected: Expected,
    duckdb_reader: duckdb.DuckDBPyConnection,
) -> None:
    """A file whose bounds were too narrow would be passed over."""
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    wanted = expected[name][NAMESPACE, table_name]
    sought = [(column, value) for column in wanted.columns for value in extremes(wanted, column)]
    assert {column for column, _ in sought} == set(wanted.columns)
    found = {
        (column, value): count_in_duckdb(duckdb_reader, table, f"{in_duckdb(column)} = $2", value)
        for column, value in sought
    }
    assert found == {(column, value): python_values(wanted, column).count(value) for column, value in sought}


@pytest.mark.parametrize(
    ("name", "table_name", "column"),
    [
        ("orders", "orders", "order_id"),
        ("orders", "orders", "ordered_at"),
        ("orders", "customers", "name"),
        ("all_types", "all_types", "integer"),
        ("all_types", "all_types", "date_time"),
        ("all_types", "all_types", "string"),
        ("all_types", "all_types", "decimal"),
        ("all_types", "all_types", "decimal_string"),
    ],
)
def test_pyiceberg_finds_them_too(
    name: str, table_name: str, column: str, fixture_conversations: dict[str, Conversation], expected: Expected
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    wanted = expected[name][NAMESPACE, table_name]
    assert extremes(wanted, column)
    for value in extremes(wanted, column):
        scan = table.scan(row_filter=EqualTo(term=column, value=value), selected_fields=(column,))
        assert scan.to_arrow()[column].to_pylist() == [value] * python_values(wanted, column).count(value)


def test_a_filter_opens_only_the_files_whose_bounds_allow_for_its_value(
    fixture_conversations: dict[str, Conversation], expected: Expected
) -> None:
    table = fixture_conversations["orders"].table(NAMESPACE, "events")
    sessions = set(expected["orders"][NAMESPACE, "events"].values("session"))
    assert len(sessions) == orders.TRANSACTIONS
    for session in sessions:
        assert len(list(table.scan(row_filter=EqualTo(term="session", value=session)).plan_files())) == 1


@each_table
def test_columns_of_data_files_carry_the_field_ids_of_the_table(
    name: str, table_name: str, fixture_conversations: dict[str, Conversation]
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    ids = [str(column.field_id) for column in table.schema().fields]
    files = table.inspect.data_files()["file_path"].to_pylist()
    assert files
    for file in files:
        schema = pq.read_schema(file.removeprefix("file://"))
        assert [column.metadata[b"PARQUET:field_id"].decode() for column in schema] == ids


@each_table
def test_snapshots_say_how_many_rows_they_added_and_how_many_there_are(
    name: str, table_name: str, fixture_conversations: dict[str, Conversation], expected: Expected
) -> None:
    table = fixture_conversations[name].table(NAMESPACE, table_name)
    added = [len(transaction) for transaction in expected[name][NAMESPACE, table_name].transactions]
    summaries = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary]
    assert [(summary["added-records"], summary["total-records"]) for summary in summaries] == [
        (str(rows), str(sum(added[: number + 1]))) for number, rows in enumerate(added)
    ]
    assert [summary["total-data-files"] for summary in summaries] == [str(n) for n in range(1, len(added) + 1)]


def extremes(table: ExpectedTable, column: str) -> set[Any]:
    """The least and the greatest value of each transaction, which is one file here."""
    transactions = [python_values(table, column, [number]) for number in range(len(table.transactions))]
    return {bound for values in transactions if values for bound in (min(values), max(values))}


def python_values(table: ExpectedTable, column: str, transactions: Iterable[int] | None = None) -> list[Any]:
    """What a column holds, but for nulls and NaN: they have no bounds."""
    position, from_text = list(table.columns).index(column), PYTHON_VALUE[table.columns[column]]
    chosen = [table.rows] if transactions is None else [table.transactions[number] for number in transactions]
    texts = [row[position] for rows in chosen for row in rows]
    return [value for text in texts if text is not None and (value := from_text(text)) == value]


PYTHON_VALUE: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys((f"decimal({digits})" for digits in ("9, 2", "18, 4", "38, 12", "20, 0")), Decimal),
    "boolean": lambda text: text == "true",
    "long": int,
    "double": float,
    "string": str,
    "binary": bytes.fromhex,
    "date": date.fromisoformat,
    "timestamptz": lambda text: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text)),
}
