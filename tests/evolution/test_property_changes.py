"""Which table properties a publication sets in a table that exists."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.values import SchemaEvolution
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.plan_changes import plan_changes
from connector.evolution.property_changes import SetTableProperties
from connector.evolution.table_change import TableChange, describe_change
from connector.evolution.target import NewColumn, Target
from connector.model.properties import Properties
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH

OWNER = Owner(MATERIALIZATION, "shop%2Forders.v0")
ID = NewColumn("id", "id", LongType(), True, "", True, "id", is_key=True)
NOTE = NewColumn("note", "note", LongType(), False, "", False)
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
CONFIGURED = {"color": "red", "shape": "round"}


def planned(
    existing: dict[str, str],
    configured: dict[str, str],
    *columns: NewColumn,
    mode: SchemaEvolution = SchemaEvolution.FULL,
    owner: Owner | None = OWNER,
    backfill: int = 0,
) -> list[TableChange]:
    table = ExistingTable(SCHEMA, "uuid-1", owner, properties=existing)
    target = Target(
        PATH,
        Owner(MATERIALIZATION, f"shop%2Forders.v{backfill}"),
        (ID, *columns),
        configured,
        replaces=backfill > 0,
        settings=BindingSettings(mode),
    )
    return plan_changes(CatalogEntry(True, table), target)


def test_a_property_that_differs_is_set_and_the_description_has_both_values() -> None:
    [change] = planned({"color": "blue", "shape": "round", "size": "1"}, CONFIGURED)
    assert change == SetTableProperties(Properties({"color": "red"}), Properties({"color": "blue"}))
    assert describe_change(change, PATH) == "alter table shop.orders: set table property color = 'red' (was 'blue')"


def test_several_properties_are_one_change_in_the_order_of_the_config() -> None:
    [change] = planned({"shape": "square"}, CONFIGURED)
    assert (
        describe_change(change, PATH)
        == "alter table shop.orders: set table properties color = 'red', shape = 'round' (was 'square')"
    )


@pytest.mark.parametrize("existing", [CONFIGURED, {**CONFIGURED, "size": "1"}])
def test_a_table_that_has_the_properties_is_not_changed(existing: dict[str, str]) -> None:
    assert planned(existing, CONFIGURED) == []


def test_a_property_that_the_config_does_not_name_stays() -> None:
    assert planned({"color": "red", "flow.owner": OWNER.encode()}, {}) == []


@pytest.mark.parametrize("mode", SchemaEvolution)
@pytest.mark.parametrize("owner", [OWNER, Owner("acme/other", "x"), None])
def test_properties_are_no_schema_so_every_mode_sets_them_in_the_tables_of_others_too(
    mode: SchemaEvolution, owner: Owner | None
) -> None:
    [change] = planned({}, {"color": "red"}, mode=mode, owner=owner)
    assert isinstance(change, SetTableProperties)


def test_a_backfill_says_which_properties_it_sets() -> None:
    [change] = planned({"color": "blue", "size": "1"}, {"color": "red", "size": "1"}, backfill=1)
    assert describe_change(change, PATH).endswith(
        "the columns ('id' long not null); set table property color = 'red' (was 'blue')"
    )
    [change] = planned({"color": "red"}, {"color": "red"}, backfill=1)
    assert describe_change(change, PATH).endswith("the columns ('id' long not null)")


def test_properties_come_after_the_columns() -> None:
    changes = planned({}, {"color": "red"}, NOTE)
    assert [describe_change(change, PATH) for change in changes] == [
        "alter table shop.orders: add column 'note' long",
        "alter table shop.orders: set table property color = 'red'",
    ]


@pytest.mark.parametrize("name", ["format-version", "schema.name-mapping.default"])
def test_what_the_table_keeps_up_to_date_itself_is_not_set_back(name: str) -> None:
    assert planned({}, {name: "2"}) == []
    assert planned({name: "[]"}, {name: "2"}) == []
