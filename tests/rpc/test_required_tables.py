"""With `existing_table: require`, apply does not create the binding's table, neither at first nor when it is gone."""

from pathlib import Path

import msgspec
import pytest

from connector.host.errors import UserError
from protocol.flow import Json, MaterializationBinding
from rpc.applied_bindings import ORDERS, applied, before
from support.bindings import PATH
from support.bindings import materialization_binding as binding
from support.snapshots import check_text
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
    for backfill in (0, 1):
        with pytest.raises(UserError, match=r"table shop\.orders does not exist"):
            applied(tmp_path, requiring(backfill), last=before(requiring()))
    assert not catalog.table_exists(PATH)


def test_a_backfill_does_not_drop_a_table_that_is_required_to_create_it_again(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    made = foreign_table(catalog, PATH)
    flag = "always_drop_tables_on_backfill"
    with pytest.raises(UserError) as error:
        applied(tmp_path, requiring(1), last=before(requiring()), flags=flag)
    check_text("apply_errors", "a backfill would drop a table that is required", str(error.value))
    assert catalog.load_table(PATH).metadata == made.metadata
    assert "replace" in applied(tmp_path, requiring(1), last=before(requiring())).action_description


def test_its_table_of_rejected_rows_is_created_all_the_same(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    rejecting = requiring(on_invalid="quarantine")
    assert "create table shop.orders__rejected" in applied(tmp_path, rejecting).action_description
