"""What open makes of the tables that it finds, each with its way out where one cannot take the binding's rows."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, UUIDType

from connector.host.errors import FencedError, UserError
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.fences import fence
from connector.model.binding import Arrangement, PartitionField, RowSettings, UpdateMode
from connector.model.invalid_values import OnInvalid
from connector.model.state import WriterId
from connector.model.table_identifier import Generation
from protocol.flow import WHOLE_RANGE, FieldSelection, Materialization, MaterializationBinding
from protocol.protocol_error import ProtocolError
from support.bindings import PATH, collection, projection
from support.snapshots import check_text
from support.tables.local_tables import foreign_table

LEFT = "00000000-7fffffff"
DELTA, STANDARD = RowSettings(), RowSettings(updates=UpdateMode.KEEP_DELETED)
ORDERS = collection(projection("id", "integer"), projection("doc", "object", ptr=""))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "Note", StringType(), required=False),
    NestedField(3, "doc", StringType(), required=False),
)


def bind(catalog: Catalog, selection: FieldSelection, settings: RowSettings = DELTA) -> BoundTable:
    binding = MaterializationBinding(
        collection=ORDERS, resource_path=PATH, state_key="orders.v1", field_selection=selection
    )
    task = Materialization(name="acme/task", bindings=(binding,))
    [bound] = bind_all(catalog, task, WHOLE_RANGE.key_range, [settings])
    return bound


def refused(catalog: Catalog, selection: FieldSelection, settings: RowSettings = DELTA) -> str:
    with pytest.raises(UserError) as error:
        bind(catalog, selection, settings)
    return str(error.value)


@pytest.mark.parametrize("path", [(), ("orders",), ("lake", "shop", "orders")], ids=len)
@pytest.mark.parametrize("on_invalid", [OnInvalid.STOP, OnInvalid.QUARANTINE])
def test_a_resource_path_that_names_no_table_is_refused(
    catalog: Catalog, path: tuple[str, ...], on_invalid: OnInvalid
) -> None:
    task = Materialization(name="acme/task", bindings=(MaterializationBinding(resource_path=path),))
    with pytest.raises(ProtocolError, match="expected two elements"):
        bind_all(catalog, task, WHOLE_RANGE.key_range, [RowSettings(on_invalid)])


def test_columns_come_in_the_order_of_store_with_the_tables_own_ids(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA)
    bound = bind(catalog, FieldSelection(keys=("id",), values=("note",), document="doc"))
    assert [(column.field, column.name, column.id) for column in bound.binding.columns] == [
        ("id", "id", 1),
        ("note", "Note", 2),
        ("doc", "doc", 3),
    ]
    assert [column.required for column in bound.binding.columns] == [True, False, False]


def test_the_fence_value_is_read_when_the_session_opens(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH, SCHEMA)
    writer = WriterId("acme/task", "orders.v1", WHOLE_RANGE.key_range)
    value = f"closed:{fence.new_value()}"
    with table.transaction() as transaction:
        transaction.set_properties({fence.property_name(writer): value})
    assert fence.read_value(dict(bind(catalog, FieldSelection(keys=("id",))).properties), writer) == value


def test_a_table_whose_rows_a_backfill_replaces_is_known_by_its_generation(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH, SCHEMA)
    generation = Generation("later", (str(table.metadata.table_uuid),), "acme/task")
    with table.transaction() as transaction:
        transaction.set_properties(generation.encode())
    bound = bind(catalog, FieldSelection(keys=("id",)))
    assert (bound.table_uuid, bound.awaits_backfill) == ("later", False)


@pytest.mark.parametrize(("of", "is_awaited"), [("acme/task", True), ("acme/other", False)])
def test_a_table_awaits_the_backfill_of_its_own_task(catalog: Catalog, of: str, is_awaited: bool) -> None:
    table = foreign_table(catalog, PATH, SCHEMA)
    generation = Generation("later", (str(table.metadata.table_uuid),), of, schema_id=0)
    with table.transaction() as transaction:
        transaction.set_properties(generation.encode())
    assert bind(catalog, FieldSelection(keys=("id",))).awaits_backfill is is_awaited


@pytest.mark.parametrize("value", ["zz", ""])
def test_a_fence_that_was_changed_by_hand_is_no_fence_to_begin_with(catalog: Catalog, value: str) -> None:
    table = foreign_table(catalog, PATH, SCHEMA)
    with table.transaction() as transaction:
        transaction.set_properties({fence.property_name(WriterId("acme/task", "orders.v0", LEFT)): value})
    with pytest.raises(FencedError, match=r"table shop\.orders: .* which is no fence value of this connector"):
        bind(catalog, FieldSelection(keys=("id",)))


def test_a_missing_table_says_how_it_comes_to_be(catalog: Catalog) -> None:
    check_text("session_errors", "a missing table", refused(catalog, FieldSelection(keys=("id",))))


def test_a_column_that_was_dropped_is_named(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA)
    check_text(
        "session_errors", "a column that is gone", refused(catalog, FieldSelection(keys=("id",), values=("price",)))
    )


def test_standard_updates_without_documents_are_refused(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA)
    text = refused(catalog, FieldSelection(keys=("id",)), STANDARD)
    check_text("session_errors", "standard updates without documents", text)


def test_a_key_column_that_was_dropped_or_renamed_is_named(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA)
    with catalog.load_table(PATH).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("id", "key")
    text = refused(catalog, FieldSelection(keys=("id",), document="doc"), STANDARD)
    check_text("session_errors", "a key column that is gone", text)


def test_a_required_column_that_gets_no_values_is_named(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA)
    check_text("session_errors", "a required column", refused(catalog, FieldSelection(keys=("note",))))


def test_a_column_of_a_type_that_is_not_written_is_named(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, Schema(NestedField(1, "id", UUIDType(), required=False)))
    check_text("session_errors", "a column of another type", refused(catalog, FieldSelection(keys=("id",))))


def test_rows_follow_the_current_spec_when_another_engine_added_one(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH, SCHEMA)
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform())
    assert bind(catalog, FieldSelection(keys=("id",))).arrangement == Arrangement(1, (PartitionField(1, "identity"),))


def test_rows_are_sorted_by_the_columns_that_the_binding_writes(catalog: Catalog) -> None:
    order = SortOrder(SortField(2, IdentityTransform()), SortField(1, IdentityTransform()))
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA, sort_order=order)
    arrangement = bind(catalog, FieldSelection(keys=("id",))).arrangement
    assert (arrangement.sort_order_id, [field.source_id for field in arrangement.sort]) == (1, [1])


def test_a_table_whose_files_cannot_be_written_as_it_asks_is_refused_before_there_are_rows(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, SCHEMA, {"write.target-file-size-bytes": "0"})
    with pytest.raises(UserError, match=r"shop\.orders: table property write\.target-file-size-bytes is '0'"):
        bind(catalog, FieldSelection(keys=("id",)))


@pytest.mark.parametrize("sign", ["#", "?"])
def test_a_location_that_pyiceberg_would_cut_is_refused(catalog: Catalog, tmp_path: Path, sign: str) -> None:
    """All files of the table would have one name, and each would replace the one before it."""
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA, f"file://{tmp_path}/orders{sign}1")
    text = refused(catalog, FieldSelection(keys=("id",)))
    check_text("session_errors", f"a location with {sign}", text, {str(tmp_path): "<directory>"})
