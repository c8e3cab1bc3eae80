"""What another engine does to the columns of rows that are staged, or about to be: none is lost without a word."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemoveSchemasUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from connector.host.errors import ConnectorError, LostColumnError, UnfitCommitError, UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.table_updates import new_schema
from connector.model.binding import KeyPart, Updates
from connector.model.state import FileList
from support.bindings import PATH
from support.engines.snapshot_refs import point
from support.rows.staged_rows import staged
from support.rows.updated_rows import land, make_table, stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import ID, filled_table, fit, rows, wanted
from support.tables.local_tables import upgrade_to_version_3

QTY = NestedField(2, "qty", LongType())
NOTE = NestedField(3, "note", StringType())
ROW: Any = {"id": 1, "qty": 10, "note": "n1"}


def give(catalog: Catalog, *columns: NestedField) -> None:
    """The table gets these columns, by their ids, from an engine that replaces tables (Spark's CREATE OR REPLACE TABLE
    gives a column the id that one of its name had, whatever its type)."""
    table = catalog.load_table(PATH)
    schema = Schema(*columns, schema_id=table.metadata.current_schema_id + 1)
    catalog.commit_table(table, (), new_schema(table, schema))


def test_a_session_that_writes_a_dropped_column_is_told(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("note")
    with pytest.raises(LostColumnError) as error:
        commit_all_or_raise(catalog, [commit])
    check_text("commit_errors", "a column was dropped while a session was writing it", str(error.value))
    commit_all_or_raise(catalog, [replace(commit, is_recovered=True)])
    assert rows(catalog) == [{"id": 1, "qty": 10}]


def test_a_dropped_column_that_the_rows_do_not_have_is_no_loss(catalog: Catalog) -> None:
    """The task does not write each column of the table."""
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    assert not isinstance(commit.files, FileList)
    [file] = commit.files
    held = msgspec.structs.replace(file, columns=tuple(each for each in file.columns if each.field_id != 3))
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("note")
    commit_all_or_raise(catalog, [replace(commit, files=(held,))])
    assert rows(catalog) == [{"id": 1, "qty": 10}]


def test_a_column_that_comes_again_under_its_name_is_another(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("note")
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("note", StringType())
    with pytest.raises(LostColumnError):
        commit_all_or_raise(catalog, [commit])


def test_a_column_that_is_only_renamed_keeps_its_values(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    with catalog.load_table(PATH).update_schema() as update:
        update.rename_column("note", "remark")
    commit_all_or_raise(catalog, [commit])
    assert rows(catalog) == [{"id": 1, "qty": 10, "remark": "n1"}]


def drop(catalog: Catalog, name: str) -> None:
    with catalog.load_table(PATH).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)


@pytest.mark.parametrize("is_again", [False, True], ids=["dropped", "dropped and added again"])
@pytest.mark.parametrize(("is_recovered", "kind"), [(False, LostColumnError), (True, UnfitCommitError)])
@pytest.mark.parametrize("name", ["id", "doc"])
def test_rows_of_standard_updates_are_not_added_without_their_key_or_their_document(
    catalog: Catalog, name: str, is_recovered: bool, kind: type[ConnectorError], is_again: bool
) -> None:
    """A Load would not find them, or could not answer. They stay staged, for the time when the column is back."""
    make_table(catalog)
    land(catalog, {1: "a"})
    commit = replace(stage_updates(catalog, {1: "b", 2: "a"}), is_recovered=is_recovered)
    before = catalog.load_table(PATH).metadata
    drop(catalog, name)
    if is_again:
        with catalog.load_table(PATH).update_schema() as update:
            update.add_column(name, before.schema().find_type(name))
    with pytest.raises(UserError) as error:
        commit_all_or_raise(catalog, [commit])
    assert type(error.value) is kind
    check_text("commit_errors", f"the column {name} of staged updates was dropped", str(error.value))
    assert catalog.load_table(PATH).metadata.current_snapshot_id == before.current_snapshot_id
    restored = SetCurrentSchemaUpdate(schema_id=before.current_schema_id)
    catalog.commit_table(catalog.load_table(PATH), (), (restored,))
    commit_all_or_raise(catalog, [commit])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_nor_are_they_if_the_key_was_converted_before_its_new_column_was_dropped(catalog: Catalog) -> None:
    make_table(catalog)
    commit = stage_updates(catalog, {1: "a"})
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    drop(catalog, "id")
    with pytest.raises(LostColumnError, match="has dropped column 'id', which has a part of the key"):
        commit_all_or_raise(catalog, [commit])


@pytest.mark.parametrize("is_recovered", [False, True])
def test_values_that_could_not_be_read_are_never_added(catalog: Catalog, is_recovered: bool) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = replace(staged(catalog, ROW), is_recovered=is_recovered)
    give(catalog, ID, NestedField(2, "qty", StringType()), NOTE)
    with pytest.raises(UnfitCommitError) as error:
        commit_all_or_raise(catalog, [commit])
    check_text("commit_errors", "a column has another type than the staged rows", str(error.value))
    assert rows(catalog) == []
    give(catalog, ID, QTY, NOTE)
    commit_all_or_raise(catalog, [commit])
    assert rows(catalog) == [ROW]


@pytest.mark.parametrize(
    ("written", "current", "is_read"),
    [
        (IntegerType(), LongType(), True),
        (LongType(), IntegerType(), False),
        (DecimalType(9, 2), DecimalType(9, 2), True),
        (DecimalType(9, 2), DecimalType(12, 2), True),
        (DecimalType(12, 2), DecimalType(9, 2), False),
        (DecimalType(9, 2), DecimalType(9, 3), False),
    ],
)
def test_a_wider_column_takes_what_was_staged_for_a_narrower_one(
    catalog: Catalog, written: Any, current: Any, is_read: bool
) -> None:
    filled_table(catalog, ID, NestedField(2, "qty", written))
    commit = staged(catalog, {"id": 1, "qty": 5})
    give(catalog, ID, NestedField(2, "qty", current))
    if is_read:
        commit_all_or_raise(catalog, [commit])
        assert [row["qty"] for row in rows(catalog)] == [5]
    else:
        with pytest.raises(UnfitCommitError, match="no reader could read them"):
            commit_all_or_raise(catalog, [commit])


def expire_schemas(catalog: Catalog) -> None:
    """What Spark's expire_snapshots does with `clean_expired_metadata`, if no snapshot has an older schema."""
    table = catalog.load_table(PATH)
    older = [each.schema_id for each in table.metadata.schemas if each.schema_id != table.metadata.current_schema_id]
    catalog.commit_table(table, (), (RemoveSchemasUpdate(schema_ids=older),))


def test_a_dropped_column_is_told_also_if_the_schema_of_the_rows_is_gone(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("note")
    expire_schemas(catalog)
    with pytest.raises(LostColumnError, match="has dropped column 'note'"):
        commit_all_or_raise(catalog, [commit])
    commit_all_or_raise(catalog, [replace(commit, is_recovered=True)])
    assert rows(catalog) == [{"id": 1, "qty": 10}]


@pytest.mark.parametrize("is_recovered", [False, True])
def test_unreadable_values_are_not_added_also_if_the_schema_of_the_rows_is_gone(
    catalog: Catalog, is_recovered: bool
) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = replace(staged(catalog, ROW), is_recovered=is_recovered)
    give(catalog, ID, NestedField(2, "qty", StringType()), NOTE)
    expire_schemas(catalog)
    with pytest.raises(UnfitCommitError, match="from long to string"):
        commit_all_or_raise(catalog, [commit])
    assert rows(catalog) == []


def test_late_files_keep_their_values_also_if_the_schema_of_the_rows_is_gone(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    commit = staged(catalog, ROW)
    fit(catalog, wanted("id", LongType()), wanted("qty", StringType()), wanted("note", StringType()))
    expire_schemas(catalog)
    commit_all_or_raise(catalog, [replace(commit, is_recovered=True)])
    assert rows(catalog) == [{"id": 1, "qty": "10", "note": "n1"}]


@pytest.mark.parametrize("is_recovered", [False, True])
def test_rows_without_the_value_of_a_required_column_are_not_added(catalog: Catalog, is_recovered: bool) -> None:
    """No reader could read the table."""
    filled_table(catalog, ID, QTY, NOTE)
    null, other = (replace(staged(catalog, row), is_recovered=is_recovered) for row in ({**ROW, "note": None}, ROW))
    give(catalog, ID, QTY, NestedField(3, "note", StringType(), required=True))
    with pytest.raises(UnfitCommitError) as error:
        commit_all_or_raise(catalog, [null])
    check_text("commit_errors", "a column has become required after rows were staged", str(error.value))
    give(catalog, ID, QTY, NOTE, NestedField(4, "must", LongType(), required=True))
    with pytest.raises(UnfitCommitError, match="requires values for column 'must' now"):
        commit_all_or_raise(catalog, [other])
    give(catalog, ID, QTY, NestedField(3, "note", StringType(), required=True))
    commit_all_or_raise(catalog, [other])
    assert rows(catalog) == [ROW]


def test_rows_of_before_a_conversion_have_the_values_that_are_required_since(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    late = staged(catalog, ROW)
    fit(catalog, wanted("id", LongType()), wanted("qty", StringType()), wanted("note", StringType()))
    converted = catalog.load_table(PATH).schema().find_field("qty")
    give(catalog, ID, converted.model_copy(update={"required": True}), NOTE)
    commit_all_or_raise(catalog, [late])
    assert rows(catalog) == [{**ROW, "qty": "10"}]


def test_a_commit_does_not_look_for_keys_in_a_column_that_was_dropped_and_added_again(catalog: Catalog) -> None:
    """A rollback brings back rows whose values are in the dropped column. They would become second rows of their
    keys."""
    make_table(catalog)
    land(catalog, {1: "a"})
    older = catalog.load_table(PATH).current_snapshot()
    assert older
    catalog.load_table(PATH).delete()
    with catalog.load_table(PATH).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("id", LongType())
    added = catalog.load_table(PATH).schema().find_field("id").field_id
    commit = stage_updates(catalog, {1: "b"}, updates=Updates((KeyPart(added, "/id"),), document_id=2))
    point(catalog, PATH, MAIN_BRANCH, older.snapshot_id)
    with pytest.raises(LostColumnError, match="has dropped column 'id', which is part of the key, and has added a new"):
        commit_all_or_raise(catalog, [commit])
    assert catalog.load_table(PATH).current_snapshot() == older, "nothing was committed"


def test_rows_get_the_default_of_a_column_that_has_become_required(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    upgrade_to_version_3(catalog, PATH)
    commit = staged(catalog, {"id": 2})
    file = Path(catalog.load_table(PATH).metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    [schema] = metadata["schemas"]
    must = {"id": 2, "name": "must", "type": "long", "required": True, "initial-default": 7}
    added = {**schema, "schema-id": 1, "fields": [*schema["fields"], must]}
    metadata |= {"schemas": [schema, added], "current-schema-id": 1, "last-column-id": 2}
    file.write_text(json.dumps(metadata))
    commit_all_or_raise(catalog, [commit])
    assert rows(catalog) == [{"id": 1, "must": 7}, {"id": 2, "must": 7}]
