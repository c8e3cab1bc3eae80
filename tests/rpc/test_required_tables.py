"""With `existing_table: require`, apply creates the binding's table only in a backfill."""

from pathlib import Path

import msgspec
import pytest

from connector.host.errors import UserError
from protocol.flow import Json, MaterializationBinding
from rpc.applied_bindings import ORDERS, applied, before
from support.bindings import PATH
from support.bindings import materialization_binding as binding
from support.tables.local_tables import foreign_table, local_catalog


def requiring(backfill: int = 0, **resource: Json) -> MaterializationBinding:
    made = binding(ORDERS, backfill=backfill)
    config = {**made.resource_config, "existing_table": "require", **resource}
    return msgspec.structs.replace(made, resource_config=config)


def test_a_table_that_is_required_is_not_created_neither_at_first_nor_again(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    with pytest.raises(UserError, match=r"table shop\.orders does not exist, and `existing_table` is require"):
        applied(tmp_path, requiring())
    assert catalog.list_namespaces() == []
    foreign_table(catalog, PATH)
    assert "create table" not in applied(tmp_path, requiring()).action_description
    catalog.drop_table(PATH)
    with pytest.raises(UserError, match=r"table shop\.orders does not exist"):
        applied(tmp_path, requiring(), last=before(requiring()))
    assert not catalog.table_exists(PATH)


def test_a_backfill_creates_a_table_that_is_required_again(tmp_path: Path) -> None:
    """It may have dropped the table itself, and was stopped before it created the new one."""
    catalog = local_catalog(tmp_path)
    made = foreign_table(catalog, PATH)
    flag = "always_drop_tables_on_backfill"
    answer = applied(tmp_path, requiring(1), last=before(requiring()), feature_flags=flag)
    assert "drop table" in answer.action_description
    assert catalog.load_table(PATH).metadata.table_uuid != made.metadata.table_uuid
    catalog.drop_table(PATH)
    assert "create table" in applied(tmp_path, requiring(2), last=before(requiring(1))).action_description


def test_its_table_of_rejected_rows_is_created_all_the_same(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    rejecting = requiring(on_invalid="quarantine")
    assert "create table shop.orders__rejected" in applied(tmp_path, rejecting).action_description
