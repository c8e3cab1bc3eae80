"""A session does not open where Loads would look for keys in other columns than those that older rows have them in."""

from dataclasses import replace
from typing import Final

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, StringType

from connector.host.errors import UserError
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.key_columns import find_inexact_parts, record_key_columns
from connector.iceberg.metadata.table_properties import KEY_COLUMNS_PREFIX, restrict_to_generation
from connector.model.binding import KeyPart, RowSettings, UpdateMode, Updates
from connector.model.state import WriterId
from connector.model.table_identifier import GENERATION_PROPERTY, Generation
from protocol.flow import WHOLE_RANGE, Collection, FieldSelection, Materialization, MaterializationBinding
from support.bindings import MATERIALIZATION, PATH, collection, projection
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import DOCUMENT, make_table, stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import ID, fit, wanted
from support.tables.local_tables import rewrite_by_another_engine

ORDERS: Final = collection(projection("id", "integer"), projection("doc", "object", ptr=""))
# Flow compares 7 and "7" as two keys. A column of text does not.
MIXED: Final = collection(projection("id", "integer", "string"), projection("doc", "object", ptr=""))
GENERATION: Final = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A table with a row, which a session with standard updates has stored."""
    make_table(catalog)
    store(catalog, 1, "a")
    return catalog


def bind(catalog: Catalog, updates: UpdateMode = UpdateMode.KEEP_DELETED, documents: Collection = ORDERS) -> BoundTable:
    binding = MaterializationBinding(
        collection=documents,
        resource_path=PATH,
        state_key=WRITER.state_key,
        field_selection=FieldSelection(keys=("id",), document="doc"),
    )
    task = Materialization(name=MATERIALIZATION, bindings=(binding,))
    [bound] = bind_all(catalog, task, WHOLE_RANGE.key_range, [RowSettings(updates=updates)])
    return bound


def store(catalog: Catalog, number: int, value: str, documents: Collection = ORDERS) -> None:
    """A session opens, and commits a transaction."""
    updates = bind(catalog, documents=documents).binding.updates
    assert updates
    commit_all_or_raise(catalog, [stage_updates(catalog, {number: value}, updates=updates)])


def recorded(catalog: Catalog) -> dict[str, str]:
    """The table's properties that record key columns."""
    properties = catalog.load_table(PATH).properties
    return {name: value for name, value in properties.items() if name.startswith(KEY_COLUMNS_PREFIX)}


def rename(catalog: Catalog, *names: tuple[str, str]) -> None:
    for name, new_name in names:
        with catalog.load_table(PATH).update_schema() as update:
            update.rename_column(name, new_name)


def test_a_key_column_that_was_dropped_and_added_again_is_noticed_whatever_the_files_have(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("id", LongType())
    rewrite_by_another_engine(catalog, PATH)
    with pytest.raises(UserError) as error:
        store(catalog, 1, "b")
    check_text("update_errors", "a key column is not the one of older rows", str(error.value))
    bind(catalog, UpdateMode.DELTA)


def test_columns_that_have_exchanged_their_names_are_noticed(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_schema() as update:
        update.make_column_optional("id")
        update.add_column("code", LongType())
    rename(catalog, ("id", "number"), ("code", "id"))
    with pytest.raises(UserError, match="column 'id' does not have this part of the key in older rows"):
        bind(catalog)
    rename(catalog, ("id", "code"), ("number", "id"))
    store(catalog, 1, "b")
    assert values_of(catalog) == {1: "b"}


def test_a_converted_column_has_the_keys_of_older_rows(catalog: Catalog) -> None:
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    updates = bind(catalog).binding.updates
    assert updates
    assert msgspec.json.decode(*recorded(catalog).values())["columns"] != {"/id": updates.parts[0].column_id}


def are_columns_enough(catalog: Catalog) -> bool:
    """Whether the next session finds the row of a key without reading documents."""
    updates = bind(catalog).binding.updates
    assert updates
    return updates.is_exact


def test_a_session_that_has_opened_while_such_rows_were_waiting_does_not_make_them_forgotten(catalog: Catalog) -> None:
    exact, inexact = (bind(catalog, documents=each).binding.updates for each in (ORDERS, MIXED))
    assert exact
    assert inexact
    waiting = stage_updates(catalog, {1: "b"}, updates=inexact)
    commit_all_or_raise(catalog, [waiting])
    commit_all_or_raise(catalog, [stage_updates(catalog, {1: "c"}, updates=exact)])
    assert not are_columns_enough(catalog)
    table = catalog.load_table(PATH)
    together = record_key_columns(table, [waiting, replace(waiting, updates=exact)])
    assert together == recorded(catalog)


def test_a_key_that_has_been_a_number_or_a_string_is_looked_for_in_documents_until_a_backfill(catalog: Catalog) -> None:
    """Otherwise a Load of "7" would find the row of 7, which is from before the schema was narrowed to strings."""
    assert are_columns_enough(catalog)
    store(catalog, 1, "b", MIXED)
    assert not are_columns_enough(catalog)
    store(catalog, 1, "c")
    assert not are_columns_enough(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(Generation(GENERATION, (), MATERIALIZATION).encode())
    assert are_columns_enough(catalog)


def test_each_text_of_a_key_that_is_not_recorded_may_be_of_a_number(catalog: Catalog) -> None:
    """By an older image, or with another key, "7" may be from when the schema allowed 7, too."""
    [(name, value)] = recorded(catalog).items()
    columns = {"/id": ID.field_id, "/code": DOCUMENT.field_id}
    properties = msgspec.json.decode(value) | {"columns": columns}

    def find() -> set[str]:
        with catalog.load_table(PATH).transaction() as transaction:
            transaction.set_properties({name: msgspec.json.encode(properties).decode()})
        return find_inexact_parts(catalog.load_table(PATH), WRITER, properties["generation"], columns)

    assert find() == set()
    properties["columns"] = {"/id": ID.field_id}
    assert find() == {"/code"}  # it was no part of the key
    properties["columns"] = {"/code": DOCUMENT.field_id}
    assert find() == {"/id"}, "a value of numbers may have been text, such as 007"
    del properties["inexact"]
    properties["columns"] = columns
    assert find() == {"/code"}
    updates = Updates((KeyPart(ID.field_id, "/id"), KeyPart(DOCUMENT.field_id, "/code")), DOCUMENT.field_id)
    newest = replace(stage_updates(catalog, {1: "b"}), updates=updates)
    [value] = record_key_columns(catalog.load_table(PATH), [newest]).values()
    assert msgspec.json.decode(value)["inexact"] == ["/code"]
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(name)
    assert find_inexact_parts(catalog.load_table(PATH), WRITER, properties["generation"], columns) == {"/code"}


def test_the_first_rows_of_a_table_have_the_exact_keys_of_their_schema(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(*recorded(catalog))
    table, columns = catalog.load_table(PATH), {"/code": DOCUMENT.field_id}
    awaited = Generation(GENERATION, (), MATERIALIZATION, schema_id=table.metadata.current_schema_id)
    assert find_inexact_parts(table, WRITER, GENERATION, columns) == {"/code"}
    assert find_inexact_parts(restrict_to_generation(table, awaited), WRITER, GENERATION, columns) == set()
    empty = catalog.create_table(("shop", "empty"), table.schema())
    empty.append(empty.schema().as_arrow().empty_table())  # a snapshot without rows, as the first one in Nessie
    assert empty.current_snapshot()
    assert find_inexact_parts(empty, WRITER, GENERATION, columns) == set()


@pytest.mark.parametrize(
    ("writer", "generation", "pointer"),
    [
        (WRITER, GENERATION, "/code"),  # the binding had another key
        (WRITER, "00000000-0000-4000-8000-000000000002", "/id"),  # a backfill has replaced the rows
        (WriterId("acme/other", "orders.v0", WRITER.key_range), GENERATION, "/id"),
    ],
    ids=["key", "generation", "task"],
)
def test_the_columns_of_other_rows_and_keys_do_not_count(
    catalog: Catalog, writer: WriterId, generation: str, pointer: str
) -> None:
    [name] = recorded(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(name)
        transaction.set_properties(Generation(GENERATION, (), MATERIALIZATION).encode())
        staged = replace(stage_updates(catalog, {2: "a"}), writer=writer, table_uuid=generation)
        updates = Updates((KeyPart(9, pointer),), 1)
        transaction.set_properties(record_key_columns(transaction._table, [replace(staged, updates=updates)]))
    assert GENERATION_PROPERTY in catalog.load_table(PATH).properties
    bind(catalog)


def test_a_recovery_records_what_the_staged_rows_have(catalog: Catalog) -> None:
    """Another engine renames the column before the first transaction is committed."""
    before, staged = recorded(catalog), stage_updates(catalog, {1: "b"})
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(*before)
    with catalog.load_table(PATH).update_schema() as update:
        update.make_column_optional("id")
        update.add_column("code", LongType())
    rename(catalog, ("id", "number"), ("code", "id"))
    commit_all_or_raise(catalog, [replace(staged, is_recovered=True)])
    assert recorded(catalog) == before
    with pytest.raises(UserError, match="column 'id' does not have this part of the key in older rows"):
        bind(catalog)


def test_a_recovery_of_an_older_image_leaves_the_property_as_it_is(catalog: Catalog) -> None:
    before, staged = recorded(catalog), stage_updates(catalog, {2: "a"})
    commit_all_or_raise(catalog, [replace(staged, updates=None, is_recovered=True)])
    assert recorded(catalog) == before


def test_a_recovery_of_an_older_images_rows_with_newer_ones_records_what_the_newer_ones_have(catalog: Catalog) -> None:
    before, older = recorded(catalog), replace(stage_updates(catalog, {2: "a"}), updates=None, is_recovered=True)
    newer = replace(stage_updates(catalog, {3: "a"}, after=[older]), is_recovered=True)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(*before)
    commit_all_or_raise(catalog, [older, newer])
    assert recorded(catalog) == before


@pytest.mark.parametrize("value", ["", "{}", '{"generation": "x", "columns": {"/id": "1"}}'])
def test_a_property_that_was_changed_by_hand_is_named(catalog: Catalog, value: str) -> None:
    [name] = recorded(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({name: value})
    with pytest.raises(UserError, match=f"table property {name} is {value!r}; it must be as the connector wrote it"):
        bind(catalog)
