"""Apply refuses what validate refuses. A task may be applied after another one than it was validated after, or by a
newer connector, and its tables may have changed meanwhile."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pytest

from connector.host.errors import UserError
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from protocol import request
from protocol.flow import Json, Materialization, MaterializationBinding, ValidateBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, PATH, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.tables.applying import Applying
from support.tables.local_tables import foreign_table, local_catalog

ORDERS: Final = collection(ID, DOCUMENT, projection("note", "string"))


def configured(given: MaterializationBinding, **resource: Json) -> MaterializationBinding:
    """The binding with other settings."""
    config = {**given.resource_config, **resource}
    return msgspec.structs.replace(given, resource_config=config, delta_updates=config.get("delta_updates", True))


def standard(backfill: int = 0) -> MaterializationBinding:
    return configured(binding(ORDERS, document="flow_document", backfill=backfill), delta_updates=False)


def apply_refuses(
    warehouse: Path, *bindings: MaterializationBinding, last: MaterializationBinding | None = None, **advanced: Json
) -> list[str]:
    """Why apply does not do it. No table is created or changed."""
    catalog = local_catalog(warehouse)

    def tables() -> Mapping[tuple[str, ...], str]:
        paths = [path for namespace in catalog.list_namespaces() for path in catalog.list_tables(namespace)]
        return {path: catalog.load_table(path).metadata_location for path in paths}

    before = tables()
    task = materialization(local_config(warehouse, **advanced), *bindings)
    message = request.Apply(task, last_materialization=Materialization(bindings=(last,)) if last else None)
    with pytest.raises(UserError) as error:
        apply(message)
    assert tables() == before
    return str(error.value).splitlines()


def validate_refuses(
    warehouse: Path, *bindings: MaterializationBinding, last: MaterializationBinding | None = None, **advanced: Json
) -> list[str]:
    """Why validate refuses the same bindings."""
    proposed = (
        ValidateBinding(
            each.resource_config,
            each.collection,
            field_config=each.field_selection.field_config,
            backfill=each.backfill,
        )
        for each in bindings
    )
    message = request.Validate(
        MATERIALIZATION,
        config=local_config(warehouse, **advanced),
        bindings=tuple(proposed),
        last_materialization=Materialization(bindings=(last,)) if last else None,
    )
    with pytest.raises(UserError) as error:
        validate(message)
    return str(error.value).splitlines()


PROPERTIES: Final = {
    "write.object-storage.enabled": "maybe",
    "write.metadata.previous-versions-max": "few",
    "write.data.path": "relative",
    "schema.name-mapping.default": "{",
    "write.parquet.compression-codec": "rar",
    "flow.compaction.enabled": "maybe",
    "history.expire.max-snapshot-age-ms": "-1",
    "history.expire.min-snapshots-to-keep": "few",
    "flow.expire.max-snapshots-to-keep": "0",
    "gc.enabled": "maybe",
    "flow.owner": "me",
    "format-version": "1",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_an_invalid_property_of_a_new_table_is_refused(tmp_path: Path, name: str) -> None:
    new = binding(ORDERS, properties={name: PROPERTIES[name]})
    [validated] = validate_refuses(tmp_path, new)
    [applied] = apply_refuses(tmp_path, new)
    assert applied == validated.replace("bindings[0] (acme/orders):", "table shop.orders:")


ONLY_AT_CREATION: Final = ("format-version", "schema.name-mapping.default")


@pytest.mark.parametrize("name", [name for name in PROPERTIES if name not in ONLY_AT_CREATION])
def test_an_invalid_property_of_a_table_that_is_there_is_refused(tmp_path: Path, name: str) -> None:
    old, new = binding(ORDERS), binding(ORDERS, "note", properties={name: PROPERTIES[name]})
    Applying(tmp_path, old).go_on()
    [validated] = validate_refuses(tmp_path, new, last=old)
    [applied] = apply_refuses(tmp_path, new, last=old)
    assert applied == validated.replace("bindings[0] (acme/orders):", "table shop.orders:")


@pytest.mark.parametrize("name", [name for name in PROPERTIES if name not in ONLY_AT_CREATION])
def test_an_invalid_property_of_a_table_that_is_backfilled_is_refused(tmp_path: Path, name: str) -> None:
    old, new = binding(ORDERS), binding(ORDERS, backfill=1, properties={name: PROPERTIES[name]})
    Applying(tmp_path, old).go_on()
    [validated] = validate_refuses(tmp_path, new, last=old)
    [applied] = apply_refuses(tmp_path, new, last=old)
    assert applied == validated.replace("bindings[0] (acme/orders):", "table shop.orders:")


def test_a_directory_in_another_kind_of_store_is_refused_before_it_is_set(tmp_path: Path) -> None:
    """No session could open on the table any more, and no publication could correct it."""
    old, new = binding(ORDERS), binding(ORDERS, properties={"write.data.path": "s3://elsewhere/orders"})
    Applying(tmp_path, old).go_on()
    for problem in (*validate_refuses(tmp_path, new, last=old), *apply_refuses(tmp_path, new, last=old)):
        assert "it must be in a store of the same kind as the table's location" in problem


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_a_directory_of_a_new_table_in_another_kind_of_store_is_refused(tmp_path: Path, name: str) -> None:
    """Otherwise apply would create a table on which no session could open."""
    new = configured(binding(ORDERS, properties={name: "s3://elsewhere/orders"}), on_invalid="quarantine")
    [validated] = validate_refuses(tmp_path, new)
    assert "it must be in a store of the same kind as the table's location (file)" in validated
    applied = apply_refuses(tmp_path, new)
    tables = ("shop.orders", "shop.orders__rejected")
    assert applied == [validated.replace("bindings[0] (acme/orders):", f"table {table}:") for table in tables]


@pytest.mark.parametrize("name", ONLY_AT_CREATION)
def test_an_invalid_property_that_is_not_set_again_does_not_matter_to_a_table_that_is_there(
    tmp_path: Path, name: str
) -> None:
    Applying(tmp_path, binding(ORDERS)).go_on()
    new = binding(ORDERS, "note", properties={name: PROPERTIES[name]})
    assert "add column 'note'" in Applying(tmp_path, new, binding(ORDERS)).go_on()


@pytest.mark.parametrize(("backfill", "flags"), [(0, ""), (1, "retain_existing_data_on_backfill")])
def test_a_table_of_delta_updates_does_not_go_on_with_standard_updates(
    tmp_path: Path, backfill: int, flags: str
) -> None:
    """A publication between the two had a backfill, and was never applied."""
    last, new = binding(ORDERS, document="flow_document"), standard(backfill)
    Applying(tmp_path, last).go_on()
    [validated] = validate_refuses(tmp_path, new, last=last, feature_flags=flags)
    [applied] = apply_refuses(tmp_path, new, last=last, feature_flags=flags)
    assert validated == f"bindings[0] (acme/orders): {applied}"


def test_a_table_that_another_program_has_created_since_validate_is_refused(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [validated] = validate_refuses(tmp_path, binding(ORDERS))
    [applied] = apply_refuses(tmp_path, binding(ORDERS))
    assert validated == f"bindings[0] (acme/orders): {applied}"


def test_a_table_that_another_program_creates_during_apply_is_refused(tmp_path: Path) -> None:
    planned = Applying(tmp_path, binding(ORDERS, "note"))
    table = foreign_table(local_catalog(tmp_path), PATH)
    with pytest.raises(UserError, match=r"table shop\.orders exists already, and this task did not create it"):
        planned.go_on()
    assert local_catalog(tmp_path).load_table(PATH).metadata_location == table.metadata_location


def test_a_table_that_is_not_for_rejected_rows_gets_none(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), ("shop", "orders__rejected"))
    new = configured(binding(ORDERS), on_invalid="quarantine")
    [validated] = validate_refuses(tmp_path, new)
    [applied] = apply_refuses(tmp_path, new)
    assert validated == f"bindings[0] (acme/orders): {applied}"


def test_a_table_name_without_room_for_that_of_rejected_rows_is_refused(tmp_path: Path) -> None:
    new = configured(binding(ORDERS, table="o" * 250), on_invalid="quarantine")
    [validated] = validate_refuses(tmp_path, new)
    [applied] = apply_refuses(tmp_path, new)
    assert validated == f"bindings[0] (acme/orders): {applied}"


def test_two_bindings_of_one_table_are_refused(tmp_path: Path) -> None:
    bindings = configured(binding(ORDERS), on_invalid="quarantine"), binding(ORDERS, table="orders__rejected")
    assert validate_refuses(tmp_path, *bindings) == apply_refuses(tmp_path, *bindings)


def test_two_names_of_one_table_are_refused(tmp_path: Path) -> None:
    """Some catalogs find a table by its name in upper case and in lower case."""
    catalog = local_catalog(tmp_path)
    Applying(tmp_path, binding(ORDERS)).go_on()
    catalog.register_table(("shop", "returns"), catalog.load_table(PATH).metadata_location)
    bindings = binding(ORDERS), binding(ORDERS, table="returns")
    [validated] = validate_refuses(tmp_path, *bindings)
    assert apply_refuses(tmp_path, *bindings) == [validated]
    assert validated == (
        "bindings[0] (acme/orders) and bindings[1] (acme/orders) have the same table: the catalog has it under the "
        "names shop.orders and shop.returns. Give one of them another table name or namespace."
    )


@pytest.mark.parametrize(("column", "location"), [("id", "/id"), ("flow_document", "(the root document)")])
def test_a_key_or_a_document_whose_column_another_program_has_renamed_is_refused(
    tmp_path: Path, column: str, location: str
) -> None:
    Applying(tmp_path, standard()).go_on()
    table = local_catalog(tmp_path).load_table(PATH)
    table.append(pa.Table.from_pylist([{"id": 1, "flow_document": "{}"}], table.schema().as_arrow()))
    with table.update_schema() as update:
        update.rename_column(column, "other")
    [validated] = validate_refuses(tmp_path, standard(), last=standard())
    [applied] = apply_refuses(tmp_path, standard(), last=standard())
    refusal = applied.removeprefix("table shop.orders: ")
    assert validated == f"bindings[0] (acme/orders): location {location} must be materialized: {refusal}"


def test_a_name_that_iceberg_reserves_is_refused(tmp_path: Path) -> None:
    new = binding(ORDERS, "note", field_config={"note": {"column": "_pos"}})
    [applied] = apply_refuses(tmp_path, new)
    assert applied.startswith("table shop.orders: field 'note': Iceberg reserves the name '_pos'")
