"""The identifier fields of a table that the task created are the key of its binding, as long as it has standard
updates."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connector.config.values import ALLOW_EXISTING_TABLES
from connector.host.errors import UserError
from evolution.crashes import Crash, Moments, open_mortal
from evolution.local_task import LocalTask
from fixtures.collection import Collection, Field
from fixtures.conversation import Row, store
from protocol.flow import ConstraintType, Json
from support.bindings import PATH, local_config
from support.tables.local_tables import foreign_table

ID = Field("id", "/id", ("integer",), exists="MUST")
REGION = Field("region", "/region", ("string",), exists="MUST")
NOTE = Field("note", "/note", ("string",), exists="MUST")
QTY = Field("qty", "/qty", ("integer",))
REFUSED = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}
NONE_ANY_MORE = "alter table shop.orders: no identifier fields any more"


def orders(
    *fields: Field, key: Sequence[str] = ("id",), delta_updates: bool = False, backfill: int = 0, **settings: str
) -> Json:
    """The binding that apply is told of."""
    keyed = tuple(replace(field, is_key=field.name in key) for field in fields or (ID, REGION, QTY))
    collection = Collection("acmeCo/orders", "orders", keyed, {"delta_updates": delta_updates, **settings})
    return {**collection.open_binding(), "backfill": backfill, "stateKey": f"shop%2Forders.v{backfill}"}


@pytest.fixture
def task(tmp_path: Path, catalog: Catalog) -> LocalTask:
    return LocalTask(tmp_path, catalog, local_config(tmp_path, feature_flags=ALLOW_EXISTING_TABLES))


def refusals(task: LocalTask, binding: Json, last: Json) -> dict[str, str]:
    """Why validate refuses fields."""
    proposed = {name: binding[name] for name in ("resourceConfig", "collection", "backfill")}
    constraints = task.validated(
        {**proposed, "fieldConfig": binding["fieldSelection"]["fieldConfig"]}, last
    ).constraints
    return {field: each.reason for field, each in constraints.items() if each.type in REFUSED}


def published(task: LocalTask, binding: Json, last: Json = None) -> list[str]:
    """What apply does for a binding to which validate has no objection. It is done once."""
    assert refusals(task, binding, last) == {}
    actions = task.applied(binding, last).action_description.splitlines()
    for before in (last, binding):
        assert task.applied(binding, before).action_description == ""
    return actions


def identifier(catalog: Catalog) -> set[str]:
    return catalog.load_table(PATH).schema().identifier_field_names()


@pytest.mark.parametrize("mode", ["strict", "add_columns", "full"])
def test_another_key_becomes_the_identifier(task: LocalTask, catalog: Catalog, mode: str) -> None:
    first, then = orders(), orders(key=("id", "region"), schema_evolution=mode)
    published(task, first)
    assert identifier(catalog) == {"id"}
    assert published(task, then, first) == ["alter table shop.orders: one row for each 'id', 'region'"]
    assert identifier(catalog) == {"id", "region"}
    assert published(task, first, then) == ["alter table shop.orders: one row for each 'id'"]
    assert identifier(catalog) == {"id"}


def test_delta_updates_leave_no_identifier(task: LocalTask, catalog: Catalog) -> None:
    first, then = orders(), orders(delta_updates=True)
    published(task, first)
    assert published(task, then, first) == [NONE_ANY_MORE]
    rows = [{"id": 1, "region": "north", "qty": qty} for qty in (1, 2)]
    collection = Collection("acmeCo/orders", "orders", tuple(replace(f, is_key=f is ID) for f in (ID, REGION, QTY)))
    task.landed(task.staged(then, [store(collection, Row(0, row), packed=False) for row in rows]))
    table = catalog.load_table(PATH)
    assert table.schema().identifier_field_ids == []
    assert sorted(table.scan().to_arrow()["qty"].to_pylist()) == [1, 2]


def test_a_key_with_a_column_that_may_be_null_is_no_identifier(task: LocalTask, catalog: Catalog) -> None:
    first, then = orders(), orders(ID, REGION, QTY, NOTE, key=("id", "note"))
    published(task, first)
    assert published(task, then, first) == ["alter table shop.orders: add column 'note' string", NONE_ANY_MORE]
    assert identifier(catalog) == set()
    assert published(task, first, then) == ["alter table shop.orders: one row for each 'id'"]
    assert identifier(catalog) == {"id"}


@pytest.mark.parametrize(
    ("value", "action"),
    [
        (replace(ID, exists="MAY"), "drop not null of column 'id'"),
        (replace(ID, types=("string",)), "convert column 'id' from long to string, in new data files"),
        (replace(ID, config={"column": "number"}), "rename column 'id' to 'number'"),
        (None, "drop not null of column 'id'"),
    ],
)
def test_a_column_that_was_the_key_changes_like_any_other(
    task: LocalTask, catalog: Catalog, value: Field | None, action: str
) -> None:
    first = orders()
    then = orders(*filter(None, (value, REGION, QTY)), key=("region",))
    published(task, first)
    assert published(task, then, first) == [
        f"alter table shop.orders: {action}",
        "alter table shop.orders: one row for each 'region'",
    ]
    assert identifier(catalog) == {"region"}


def test_a_column_that_was_the_key_of_standard_updates_changes_with_delta_updates(task: LocalTask) -> None:
    first, then = orders(), orders(replace(ID, types=("string",)), REGION, QTY, delta_updates=True)
    published(task, first)
    converted = "alter table shop.orders: convert column 'id' from long to string, in new data files"
    assert published(task, then, first) == [converted, NONE_ANY_MORE]


def test_a_column_that_stays_in_the_key_of_standard_updates_is_not_converted(task: LocalTask, catalog: Catalog) -> None:
    first, then = orders(), orders(replace(ID, types=("string",)), REGION, QTY, key=("id", "region"))
    published(task, first)
    refusal = "an identifier field of the table depends on the column"
    assert refusal in refusals(task, then, first)["id"]
    with pytest.raises(UserError, match=refusal):
        task.applied(then, first)
    assert identifier(catalog) == {"id"}


def test_a_key_column_is_not_converted_either_if_the_key_cannot_be_the_identifier(task: LocalTask) -> None:
    first, then = (
        orders(replace(ID, types=(kind,)), REGION, NOTE, key=("id", "note")) for kind in ("integer", "string")
    )
    published(task, orders())
    published(task, first, orders())
    refusal = "the key of the table depends on the column"
    assert refusal in refusals(task, then, first)["id"]
    with pytest.raises(UserError, match=refusal):
        task.applied(then, first)


def test_a_renamed_key_stays_the_identifier(task: LocalTask, catalog: Catalog) -> None:
    first, then = orders(), orders(replace(ID, config={"column": "number"}), REGION, QTY)
    published(task, first)
    assert published(task, then, first) == ["alter table shop.orders: rename column 'id' to 'number'"]
    assert identifier(catalog) == {"number"}


def test_the_next_publication_sets_what_another_engine_has_changed(task: LocalTask, catalog: Catalog) -> None:
    published(task, binding := orders())
    with catalog.load_table(PATH).update_schema() as update:
        update.set_identifier_fields("region")
    assert published(task, binding, binding) == ["alter table shop.orders: one row for each 'id'"]
    assert identifier(catalog) == {"id"}


def test_identifier_fields_of_somebody_else_stay_with_delta_updates(task: LocalTask, catalog: Catalog) -> None:
    published(task, binding := orders(delta_updates=True))
    with catalog.load_table(PATH).update_schema() as update:
        update.set_identifier_fields("id", "region")
    assert published(task, binding, binding) == []
    assert identifier(catalog) == {"id", "region"}


@pytest.mark.parametrize("delta_updates", [False, True])
def test_a_table_that_the_task_did_not_create_keeps_its_identifier_fields(
    task: LocalTask, catalog: Catalog, delta_updates: bool
) -> None:
    columns = NestedField(1, "id", LongType(), required=True), NestedField(2, "region", StringType(), required=True)
    foreign_table(catalog, PATH, Schema(*columns, identifier_field_ids=[2]))
    first, then = orders(), orders(delta_updates=delta_updates)
    published(task, first)
    assert published(task, then, first) == []
    assert identifier(catalog) == {"region"}


def test_a_publication_before_the_first_commit_of_a_backfill_changes_the_identifier_to_come(
    task: LocalTask, catalog: Catalog
) -> None:
    first, second, third = orders(), orders(backfill=1), orders(key=("region",), backfill=1)
    published(task, first)
    published(task, second, first)
    assert published(task, third, second) == ["alter table shop.orders: one row for each 'region'"]
    assert identifier(catalog) == {"id"}
    collection = Collection("acmeCo/orders", "orders", tuple(replace(f, is_key=f is REGION) for f in (ID, REGION, QTY)))
    row = {"id": 1, "region": "north", "qty": 1}
    task.landed(task.staged(third, [store(collection, Row(0, row), packed=False)]))
    assert identifier(catalog) == {"region"}
    assert catalog.load_table(PATH).scan().to_arrow().num_rows == 1


def test_a_backfill_sets_the_identifier_with_its_first_commit(task: LocalTask, catalog: Catalog) -> None:
    first, then = orders(delta_updates=True), orders(backfill=1)
    published(task, first)
    published(task, then, first)
    assert identifier(catalog) == set()
    collection = Collection("acmeCo/orders", "orders", tuple(replace(f, is_key=f is ID) for f in (ID, REGION, QTY)))
    row = {"id": 1, "region": "north", "qty": 1}
    task.landed(task.staged(then, [store(collection, Row(0, row), packed=False)]))
    assert identifier(catalog) == {"id"}


@pytest.mark.parametrize("moment", range(4))
def test_an_apply_that_dies_is_repeated(tmp_path: Path, moment: int) -> None:
    """It converts a column, too, so that it has several moments."""
    moments = Moments()
    first, then = orders(), orders(replace(ID, types=("string",)), REGION, QTY, key=("region",))
    with closing(open_mortal(tmp_path, moments)) as catalog:
        task = LocalTask(tmp_path, catalog)
        published(task, first)
        with suppress(Crash), moments.ending_after(moment):
            task.applied(then, first, rewrite=moments.rewrite)
        task.applied(then, first)
        assert task.applied(then, first).action_description == ""
        assert identifier(catalog) == {"region"}
