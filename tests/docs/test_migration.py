"""docs/migration.md says which columns of Materialize's and Rivven's tables can be continued, as the rules of evolution
decide."""

import json
import re
from collections.abc import Mapping
from typing import Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from connector.evolution.column_fits import Evolution, Fit
from connector.evolution.existing_table import ExistingTable
from connector.evolution.field_config import parse_field_configs
from connector.evolution.plan_changes import plan_columns
from connector.evolution.refusals import ChangeRules
from connector.evolution.table_change import AddColumn, MakeOptional, WidenColumn
from connector.evolution.target import NewColumn
from connector.evolution.type_mapping import choose_type
from protocol.flow import Json, Projection, StringInference
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, materialization_binding, projection
from support.repository import REPOSITORY

TABLE: Final = r"^\| {} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)"
CODE: Final = re.compile(r"`([^`]+)`")
STAYS, WIDENS, REFUSED = "stays", "becomes", "**cannot**"

# By type of Materialize: its column, the field that the page names, and the field config that the page names.
COLUMNS: Final[Mapping[str, tuple[IcebergType, Projection, Json]]] = {
    "boolean": (BooleanType(), projection("x", "boolean"), {}),
    "smallint": (IntegerType(), projection("x", "integer"), {}),
    "integer": (IntegerType(), projection("x", "integer"), {}),
    "bigint": (LongType(), projection("x", "integer"), {}),
    "real": (FloatType(), projection("x", "number"), {}),
    "double precision": (DoubleType(), projection("x", "number"), {}),
    "numeric": (
        DecimalType(38, 2),
        projection("x", "string", string=StringInference("number")),
        {"decimal": {"precision": 38, "scale": 2}},
    ),
    "date": (DateType(), projection("x", "string", string=StringInference("date")), {}),
    "timestamptz": (TimestamptzType(), projection("x", "string", string=StringInference("date-time")), {}),
    "text": (StringType(), projection("x", "string"), {}),
    "varchar": (StringType(), projection("x", "string"), {}),
    "jsonb": (StringType(), projection("x", "object", "array"), {}),
    "bytea": (BinaryType(), projection("x", "string", string=StringInference(content_encoding="base64")), {}),
    "time": (TimeType(), projection("x", "string", string=StringInference("time")), {}),
    "timestamp": (TimestampType(), projection("x", "string", string=StringInference("date-time")), {}),
    "uuid": (FixedType(16), projection("x", "string", string=StringInference("uuid")), {}),
    "list": (ListType(2, StringType(), False), projection("x", "array"), {}),
    "map": (MapType(2, StringType(), 3, StringType(), False), projection("x", "object"), {}),
    "record": (StructType(NestedField(2, "a", StringType())), projection("x", "object"), {}),
}


# As Rivven creates each table.
TABLE_OF_RIVVEN: Final = Schema(
    NestedField(1, "data", StringType(), required=True),
    NestedField(2, "event_type", StringType(), required=True),
    NestedField(3, "timestamp", TimestamptzType(), required=True),
    NestedField(4, "stream", StringType()),
)


def rows_of_page() -> dict[str, tuple[str, str]]:
    """By type of Materialize: the column that the page says it has, and what the page says becomes of it."""
    rows = cells_of_page("a type of Materialize")
    return {name: (column, outcome) for types, column, _, outcome in rows for name in CODE.findall(types)}


def cells_of_page(first: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    page = (REPOSITORY / "docs" / "migration.md").read_text()
    [rows] = re.findall(TABLE.format(first), page, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]


def fit(column: IcebergType, field: Projection, config: Json) -> Fit:
    """How the field gets a column of a table that another program has created, and has rows in."""
    table = ExistingTable(Schema(NestedField(1, "x", column)), "a uuid", None, has_rows=True)
    needed = choose_type(field, parse_field_configs({"x": config})["x"], has_key_location=False)
    assert needed
    wanted = NewColumn("x", "x", needed, required=False, doc="", is_indispensable=False)
    return Evolution(ChangeRules(table, MATERIALIZATION, is_new=True)).fit_columns([wanted])["x"]


def test_the_page_has_every_type_once() -> None:
    assert rows_of_page().keys() == COLUMNS.keys()


@pytest.mark.parametrize("name", COLUMNS)
def test_the_page_says_what_becomes_of_a_column_of_materialize(name: str) -> None:
    column, outcome = rows_of_page()[name]
    found = fit(*COLUMNS[name])
    expected = REFUSED if found.refusal else WIDENS if found.changes else STAYS
    assert outcome.startswith(expected)
    assert not found.refusal or "this task did not create the column" in found.refusal
    for change in found.changes if expected == WIDENS else ():
        assert isinstance(change, WidenColumn)
        assert outcome.startswith(f"{WIDENS} {change.new_type}")
    assert column.split("(")[0] == str(COLUMNS[name][0]).partition("<")[0].partition("(")[0].partition("[")[0]


def test_a_column_of_decimals_needs_the_field_config_that_the_page_names() -> None:
    column, field, _ = COLUMNS["numeric"]
    assert "keep the column as it is with" in fit(column, field, {}).refusal


def fit_table_of_rivven(field_config: dict[str, Json]) -> list[Fit]:
    """How fields of a captured table, and the columns without a field, fit a table that Rivven has created."""
    time = projection("flow_published_at", "string", string=StringInference("date-time"))
    captured = collection(ID, projection("_meta/op", "string"), time, DOCUMENT)
    binding = materialization_binding(
        captured, "_meta/op", "flow_published_at", document="flow_document", field_config=field_config
    )
    evolution = Evolution(
        ChangeRules(ExistingTable(TABLE_OF_RIVVEN, "a uuid", None, has_rows=True), MATERIALIZATION, is_new=True)
    )
    fits = evolution.fit_columns(plan_columns(captured, binding.field_selection)).values()
    return [*fits, *evolution.fit_unwritten_columns(fits)]


def test_the_columns_of_rivven_are_continued_with_the_field_configs_that_the_page_names() -> None:
    rows = cells_of_page("a column of Rivven")
    assert [CODE.findall(row[0])[0] for row in rows] == [column.name for column in TABLE_OF_RIVVEN.fields]
    written = [[CODE.findall(cell)[0] for cell in row] for row in rows if not row[1].startswith("none")]
    fits = fit_table_of_rivven({field: json.loads(config) for _, field, config in written})
    assert not any(fit.refusal for fit in fits)
    assert [fit.column.name for fit in fits if fit.column and not fit.changes] == ["event_type", "timestamp", "data"]
    assert {column for column, _, _ in written} == {"data", "event_type", "timestamp"}


def test_a_column_without_a_field_loses_its_not_null() -> None:
    fits = fit_table_of_rivven({})
    changes = [change for fit in fits for change in fit.changes if not isinstance(change, AddColumn)]
    assert changes == [MakeOptional("data"), MakeOptional("event_type"), MakeOptional("timestamp")]
