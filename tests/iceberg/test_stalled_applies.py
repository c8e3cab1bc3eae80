"""An apply that wakes when its successor has been at work: no fence keeps it from the tables, and no row is lost."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from connector.host.errors import RetryableError
from protocol.flow import MaterializationBinding
from support.bindings import ID, PATH, collection, projection
from support.bindings import materialization_binding as binding
from support.snapshots import check_text
from support.tables.applying import Applying
from support.tables.local_tables import local_catalog, rewrite_here


def quantity(type_: str, backfill: int = 0) -> MaterializationBinding:
    return binding(collection(ID, projection("qty", type_)), "qty", backfill=backfill)


def append(warehouse: Path, **row: Any) -> Table:
    table = local_catalog(warehouse).load_table(PATH)
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    return table


def rows(warehouse: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = local_catalog(warehouse).load_table(PATH).scan().to_arrow().sort_by("id").to_pylist()
    return found


def test_a_backfill_leaves_the_table_of_a_later_backfill_alone(tmp_path: Path) -> None:
    first, second, third = (quantity("integer", backfill) for backfill in range(3))
    Applying(tmp_path, first).go_on()
    stalled = Applying(tmp_path, second, last=first)
    Applying(tmp_path, third, last=first).go_on()
    append(tmp_path, id=1, qty=10)
    with pytest.raises(RetryableError) as error:
        stalled.go_on()
    check_text("apply_errors", "a later backfill has made the table", str(error.value))
    assert rows(tmp_path) == [{"id": 1, "qty": 10}]


def test_a_backfill_whose_predecessor_had_dropped_the_table_leaves_a_later_one_alone(tmp_path: Path) -> None:
    first, second, third = (quantity("integer", backfill) for backfill in range(3))
    Applying(tmp_path, first).go_on()
    local_catalog(tmp_path).drop_table(PATH)
    stalled = Applying(tmp_path, second, last=first)
    Applying(tmp_path, third, last=first).go_on()
    append(tmp_path, id=1, qty=10)
    with pytest.raises(RetryableError, match="Another publication of the task has replaced table"):
        stalled.go_on()
    assert rows(tmp_path) == [{"id": 1, "qty": 10}]


def test_two_applies_of_one_backfill_make_one_table(tmp_path: Path) -> None:
    first, second = (quantity("integer", backfill) for backfill in range(2))
    Applying(tmp_path, first).go_on()
    stalled = Applying(tmp_path, second, last=first)
    Applying(tmp_path, second, last=first).go_on()
    append(tmp_path, id=1, qty=10)
    assert stalled.go_on() == ""
    assert rows(tmp_path) == [{"id": 1, "qty": 10}]


def test_an_alteration_on_top_of_a_later_one_keeps_every_value_and_the_next_apply_mends_the_table(
    tmp_path: Path,
) -> None:
    before, later = quantity("integer"), quantity("string")
    Applying(tmp_path, before).go_on()
    append(tmp_path, id=1, qty=10)
    stalled = Applying(tmp_path, quantity("number"), last=before)
    overtaken = iter([True])

    def stall(*arguments: Any) -> Any:
        if next(overtaken, False):
            Applying(tmp_path, later, last=before).go_on()
            append(tmp_path, id=2, qty="many")
        return rewrite_here(*arguments)

    assert stalled.go_on(stall) == (
        "alter table shop.orders: keep column 'qty' string as 'qty_before_double', and add column 'qty' double"
    )
    assert rows(tmp_path) == [
        {"id": 1, "qty_before_double": "10", "qty": None},
        {"id": 2, "qty_before_double": "many", "qty": None},
    ]
    assert Applying(tmp_path, later, last=later).go_on() == (
        "alter table shop.orders: convert column 'qty' from double to string, in new data files"
    )
    append(tmp_path, id=3, qty="more")
    assert [row["qty"] for row in rows(tmp_path)] == [None, None, "more"]
