"""A table that was there before the task is taken, from validate to the rows that are read back, or refused at every
step and left as it was."""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType

from connector.config.values import ALLOW_EXISTING_TABLES
from connector.host.errors import UserError
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from evolution.local_task import LocalTask
from fixtures.collection import Collection, Field
from fixtures.conversation import Row, store
from protocol.flow import ConstraintType, Json
from support.bindings import PATH, local_config
from support.tables.local_tables import foreign_table, turn_tables_into_views

ORDERS = Collection(
    "acmeCo/orders",
    "orders",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("region", "/region", ("string",), exists="MUST"),
        Field("qty", "/qty", ("integer",)),
    ),
)
ID_AND_REGION = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=True),
)
REFUSED = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}
THEIR_ROW = {"id": 1, "region": "north"}
ADDED = [
    "alter table shop.orders: add column 'qty' long",
    "alter table shop.orders: add column 'flow_document' string",
]


@pytest.fixture
def task(tmp_path: Path, catalog: Catalog) -> LocalTask:
    return LocalTask(tmp_path, catalog, local_config(tmp_path, feature_flags=ALLOW_EXISTING_TABLES))


def row(number: int, region: str, qty: int) -> Json:
    return {"id": number, "region": region, "qty": qty}


def published(task: LocalTask, orders: Collection = ORDERS) -> list[str]:
    """What apply does for a binding to which validate has no objection."""
    [*constraints] = task.validated(orders.validate_binding()).constraints.values()
    assert {constraint.type for constraint in constraints} & REFUSED == set()
    return task.applied(orders.open_binding()).action_description.splitlines()


def transact(task: LocalTask, *rows: Json, orders: Collection = ORDERS) -> None:
    task.landed(task.staged(orders.open_binding(), [store(orders, Row(0, each), packed=False) for each in rows]))


def rows(catalog: Catalog) -> list[Json]:
    table = catalog.load_table(PATH).scan(selected_fields=("id", "region", "qty")).to_arrow()
    return list(table.sort_by([("id", "ascending"), ("qty", "ascending")]).to_pylist())


def test_a_table_with_identifier_fields_takes_every_row_and_keeps_them(task: LocalTask, catalog: Catalog) -> None:
    foreign_table(catalog, PATH, Schema(*ID_AND_REGION, identifier_field_ids=[1, 2]))

    assert task.validated(ORDERS.validate_binding()).constraints["region"].type is ConstraintType.FIELD_REQUIRED
    assert published(task) == ADDED
    transact(task, row(1, "north", 10), row(2, "south", 20))
    transact(task, row(1, "north", 11))

    assert rows(catalog) == [row(1, "north", 10), row(1, "north", 11), row(2, "south", 20)]
    assert catalog.load_table(PATH).schema().identifier_field_names() == {"id", "region"}


def test_a_table_of_another_materialization_takes_the_rows_and_stays_its_own(task: LocalTask, catalog: Catalog) -> None:
    other = Owner("acmeCo/other", "shop%2Forders.v0").encode()
    table = foreign_table(catalog, PATH, Schema(*ID_AND_REGION), {OWNER_PROPERTY: other})
    table.append(pa.Table.from_pylist([THEIR_ROW], schema=table.schema().as_arrow()))

    assert published(task) == ADDED
    transact(task, row(2, "south", 20))

    assert rows(catalog) == [{**THEIR_ROW, "qty": None}, row(2, "south", 20)]
    assert catalog.load_table(PATH).properties[OWNER_PROPERTY] == other


@pytest.mark.parametrize(
    ("precision", "scale", "changes"),
    [
        (38, 4, ADDED[1:]),
        (20, 4, ADDED[1:]),
        (9, 4, ["alter table shop.orders: widen column 'qty' from decimal(9, 4) to decimal(20, 4)", *ADDED[1:]]),
    ],
)
def test_somebody_elses_decimals_take_the_rows_of_a_field_that_asks_for_decimals(
    task: LocalTask, catalog: Catalog, precision: int, scale: int, changes: list[str]
) -> None:
    qty = NestedField(3, "qty", DecimalType(precision, scale))
    table = foreign_table(catalog, PATH, Schema(*ID_AND_REGION, qty))
    table.append(pa.Table.from_pylist([THEIR_ROW | {"qty": Decimal("7.1")}], schema=table.schema().as_arrow()))
    config = {"decimal": {"precision": 20, "scale": 4}}
    asking = Field("qty", "/qty", ("number", "string"), string={"format": "number"}, config=config)
    orders = replace(ORDERS, fields=(*ORDERS.fields[:2], asking))

    assert published(task, orders) == changes
    transact(task, {"id": 2, "region": "south", "qty": "1234567890123456.789"}, orders=orders)

    assert [row["qty"] for row in rows(catalog)] == [Decimal("7.1"), Decimal("1234567890123456.789")]
    as_it_is = f'{{"precision": {max(precision, 20)}, "scale": 4}}}} in its field config'
    with pytest.raises(UserError, match=re.escape(as_it_is)):
        task.applied(ORDERS.open_binding())


def version_1(catalog: Catalog, _: Path) -> None:
    foreign_table(catalog, PATH, properties={"format-version": "1"})


def view(catalog: Catalog, warehouse: Path) -> None:
    foreign_table(catalog, PATH)
    turn_tables_into_views(warehouse)


@pytest.mark.parametrize(
    ("make", "refusal", "refusal_of_open"),
    [
        (version_1, "format version 1. Only versions 2 and 3 are written: upgrade the table", None),
        (view, "is a view. Choose another table name, or drop the view", "does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused_at_every_step(
    task: LocalTask,
    catalog: Catalog,
    tmp_path: Path,
    make: Callable[[Catalog, Path], None],
    refusal: str,
    refusal_of_open: str | None,
) -> None:
    make(catalog, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(UserError, match=re.escape(refusal)):
        task.validated(ORDERS.validate_binding())
    with pytest.raises(UserError, match=re.escape(refusal)):
        task.applied(ORDERS.open_binding())
    with pytest.raises(UserError, match=re.escape(refusal_of_open or refusal)):
        transact(task, row(1, "north", 10))

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
