"""What a user reads when a task cannot be published, kept in files to be reviewed: what it is, where, and what to
change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IcebergType, LongType, NestedField, StringType

from connector.config.values import RETAIN_EXISTING_DATA
from connector.encoding.parquet.file_options import CODEC, LEVEL, PROVIDER, TARGET_SIZE
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import ConnectorError
from connector.iceberg import perform_changes
from connector.iceberg.metadata.table_properties import ENCRYPTION, NAME_MAPPING, PREVIOUS_VERSIONS
from connector.iceberg.perform_changes import evolve
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from connector.rpc.validate import validate
from protocol import request
from protocol.flow import Json, Materialization, MaterializationBinding, Projection, StringInference, ValidateBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, PATH, collection, local_config, projection
from support.bindings import materialization_binding as selecting
from support.engines.foreign_deletes import delete_equal
from support.engines.foreign_files import list_data_file
from support.snapshots import check_text
from support.tables.applying import Applying
from support.tables.local_tables import (
    alterer,
    foreign_table,
    local_catalog,
    record_property,
    turn_tables_into_views,
)

REJECTED = ("shop", "orders__rejected")
NOTE, QTY = projection("note", "string"), projection("qty", "integer")
ORDERS = collection(ID, DOCUMENT, NOTE, QTY)
OURS = Owner(MATERIALIZATION, "shop%2Forders.v0")
LONG_NAME = "l" * 256
LONG = LongType()


def column(number: int, name: str, type_: IcebergType = LONG, *, required: bool = False) -> NestedField:
    return NestedField(number, name, type_, required=required)


def table(
    *columns: NestedField,
    owner: Owner | None = OURS,
    path: tuple[str, str] = PATH,
    version: str = "2",
    identifiers: Sequence[int] = (),
    rows: Sequence[Json] = (),
) -> Callable[[Path], Table]:
    """Makes one, with a file for its rows."""

    def make(warehouse: Path) -> Table:
        schema = Schema(column(1, "id", required=True), *columns, identifier_field_ids=[*identifiers])
        properties = {"format-version": version} | ({OWNER_PROPERTY: owner.encode()} if owner else {})
        made = foreign_table(local_catalog(warehouse), path, schema, properties)
        if rows:
            made.append(pa.Table.from_pylist(list(rows), schema=made.schema().as_arrow()))
        return made

    return make


def nothing(warehouse: Path) -> None:
    """No table is made."""


def a_view(warehouse: Path) -> None:
    table()(warehouse)
    turn_tables_into_views(warehouse)


def with_properties(properties: dict[str, str]) -> Callable[[Path], object]:
    def make(warehouse: Path) -> Table:
        made = foreign_table(local_catalog(warehouse), PATH, properties={OWNER_PROPERTY: OURS.encode()})
        for name, value in properties.items():
            record_property(made, name, value)
        return made

    return make


def under_two_names(warehouse: Path) -> None:
    catalog = local_catalog(warehouse)
    catalog.register_table(("shop", "returns"), table()(warehouse).metadata_location)


# Validate


def proposing(*projections: Projection, key: tuple[str, ...] = ("/id",), **resource: Json) -> ValidateBinding:
    bound = collection(*projections, key=key) if projections else ORDERS
    return ValidateBinding({"table": "orders", **resource}, bound)


@dataclass(frozen=True)
class Proposed:
    """What is there, and what is to be validated."""

    prepare: Callable[[Path], object]
    bindings: tuple[ValidateBinding, ...]
    last: Materialization | None = None


def proposed(
    *bindings: ValidateBinding, on: Callable[[Path], object] = nothing, last: Materialization | None = None
) -> Proposed:
    return Proposed(on, bindings, last)


LAST = Materialization(bindings=(MaterializationBinding(resource_path=PATH, delta_updates=True),))
NULLABLE_KEY = projection("id", "integer", "null")
RETURNS = msgspec.structs.replace(
    proposing(table="ORDERS"), collection=msgspec.structs.replace(ORDERS, name="acme/returns")
)
RETURNED = msgspec.structs.replace(RETURNS, resource_config={"table": "returns"})
QUARANTINED = proposing(on_invalid="quarantine")
STRICT = proposing(schema_evolution="strict")

NOT_VALIDATED = {
    "two bindings of one table": proposed(proposing(), RETURNS),
    "two names of one table": proposed(proposing(), RETURNED, on=under_two_names),
    "a binding of another one's rejected rows": proposed(QUARANTINED, proposing(table="orders__rejected")),
    "somebody else's table of rejected rows": proposed(QUARANTINED, on=table(path=REJECTED, owner=None)),
    "a name that is too long for rejected rows": proposed(proposing(table="t" * 250, on_invalid="quarantine")),
    "standard updates after delta updates": proposed(proposing(delta_updates=False), last=LAST),
    "a table property of the connector's": proposed(proposing(additional_table_properties={"flow.owner": "me"})),
    "a table property that a catalog keeps": proposed(
        proposing(additional_table_properties={"metadata_location": "s3://lake/other.json"})
    ),
    "another format version": proposed(proposing(additional_table_properties={"format-version": "1"})),
    "files of another codec": proposed(proposing(additional_table_properties={CODEC: "lzo"})),
    "files of too high a level": proposed(proposing(additional_table_properties={LEVEL: "23"})),
    "files with names by code": proposed(proposing(additional_table_properties={PROVIDER: "os.Names"})),
    "encrypted files": proposed(proposing(additional_table_properties={ENCRYPTION: "key-1"})),
    "files of no size": proposed(proposing(additional_table_properties={TARGET_SIZE: "512 MB"})),
    "a table with files of another codec": proposed(proposing(), on=with_properties({CODEC: "lzo"}), last=LAST),
    "metadata in no store": proposed(proposing(additional_table_properties={"write.metadata.path": "http://[::1/x"})),
    "data in another kind of store": proposed(
        proposing(additional_table_properties={"write.data.path": "s3://elsewhere/orders"})
    ),
    "metadata below no directory": proposed(proposing(additional_table_properties={"write.metadata.path": "meta"})),
    "a table with a relative directory": proposed(
        proposing(), on=with_properties({"write.data.path": "data/orders"}), last=LAST
    ),
    "a table with names by code": proposed(proposing(), on=with_properties({PROVIDER: "os.Names"}), last=LAST),
    "a table with encrypted files": proposed(proposing(), on=with_properties({ENCRYPTION: "key-1"}), last=LAST),
    "a table with a name mapping of something else": proposed(
        proposing(), on=with_properties({NAME_MAPPING: "id"}), last=LAST
    ),
    "a table with a number that is none": proposed(
        proposing(), on=with_properties({PREVIOUS_VERSIONS: "abc"}), last=LAST
    ),
    "a table with a switch that is none": proposed(
        proposing(), on=with_properties({"write.object-storage.enabled": "perhaps"}), last=LAST
    ),
    "a table of nobody's": proposed(proposing(), on=table(owner=None)),
    "another materialization's table": proposed(proposing(), on=table(owner=Owner("acme/other", "shop%2Forders.v0"))),
    "a backfill of another materialization's table": proposed(
        msgspec.structs.replace(proposing(), backfill=1), on=table(owner=Owner("acme/other", "x")), last=LAST
    ),
    "a table of version 1": proposed(proposing(), on=table(version="1")),
    "a view": proposed(proposing(), on=a_view),
    "terms that cannot be": proposed(
        proposing(
            ID,
            DOCUMENT,
            projection("note", "string"),
            projection("at", "string", string=StringInference("date-time")),
            projection("nothing", "null"),
            partition_by="idd, zzzzzz, nothing, day(note), bucket(0, id), bucket(-1, id), day(AT), hours(at), date(at)",
            sort_by="id, id desc, void(note), flow_document, year(id), bucket(3000000000, id)",
        )
    ),
    "names of partition fields that columns have": proposed(
        proposing(ID, projection("id_bucket_4", "integer"), partition_by="bucket(4, id), id_bucket_4, truncate(2, id)"),
        on=table(column(2, "ID_trunc_2")),
        last=LAST,
    ),
    "an arrangement that may not change": proposed(
        proposing(partition_by="bucket(4, id)", sort_by="id", schema_evolution="add_columns"), on=table(), last=LAST
    ),
    "a column for a term that may not be added": proposed(
        proposing(ID, projection("qty", "integer"), partition_by="qty", schema_evolution="strict"),
        on=table(),
        last=LAST,
    ),
    "a key that may be null": proposed(proposing(NULLABLE_KEY)),
    "a key with too long a name": proposed(proposing(projection(LONG_NAME, "integer", ptr="/id"))),
    "keys that differ in case": proposed(proposing(ID, projection("ID", "integer"), key=("/id", "/ID"))),
    "a required column without a field": proposed(STRICT, on=table(column(2, "gone", required=True)), last=LAST),
    "an identifier field without a field": proposed(
        proposing(), on=table(column(2, "gone", required=True), identifiers=(2,)), last=LAST
    ),
    "a key without a column": proposed(
        proposing(projection("other", "integer"), key=("/other",), schema_evolution="strict"), on=table(), last=LAST
    ),
}


@pytest.mark.parametrize("name", NOT_VALIDATED)
def test_why_a_task_cannot_be_validated(tmp_path: Path, name: str) -> None:
    case = NOT_VALIDATED[name]
    case.prepare(tmp_path)
    message = request.Validate(
        MATERIALIZATION, config=local_config(tmp_path), bindings=case.bindings, last_materialization=case.last
    )
    with pytest.raises(ConnectorError) as error:
        validate(message)
    check_text("validate_errors", name, str(error.value))


# Apply


@dataclass(frozen=True)
class Published:
    """What is there, and what is to be applied after what."""

    prepare: Callable[[Path], object]
    new: MaterializationBinding
    last: MaterializationBinding | None = None
    flags: str = ""


def published(
    new: MaterializationBinding,
    on: Callable[[Path], object] = nothing,
    last: MaterializationBinding | None = None,
    flags: str = "",
) -> Published:
    return Published(on, new, last, flags)


def in_mode(mode: str, new: MaterializationBinding) -> MaterializationBinding:
    return msgspec.structs.replace(new, resource_config={**new.resource_config, "schema_evolution": mode})


def appending(new: MaterializationBinding) -> MaterializationBinding:
    return msgspec.structs.replace(new, resource_config={**new.resource_config, "existing_table": "append"})


def renaming(**names: str) -> MaterializationBinding:
    return selecting(ORDERS, *names, field_config={field: {"column": name} for field, name in names.items()})


def with_partitions(warehouse: Path) -> None:
    with table(column(2, "qty", StringType()))(warehouse).update_spec() as spec:
        spec.add_field("qty", IdentityTransform())


def with_order(warehouse: Path) -> None:
    catalog = local_catalog(warehouse)
    catalog.create_namespace(PATH[0])
    schema = Schema(column(1, "id", required=True), column(2, "qty", StringType()))
    order = SortOrder(SortField(2, IdentityTransform()))
    catalog.create_table(PATH, schema, sort_order=order, properties={OWNER_PROPERTY: OURS.encode()})


def arranged(partition_by: str, sort_by: str, new: MaterializationBinding) -> MaterializationBinding:
    return msgspec.structs.replace(
        new, resource_config={**new.resource_config, "partition_by": partition_by, "sort_by": sort_by}
    )


def without_field_ids(warehouse: Path) -> None:
    made = table(column(2, "qty", StringType()))(warehouse)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("qty", pa.string())])
    pq.write_table(pa.table({"id": [1], "qty": ["2"]}, schema=schema), warehouse / "imported.parquet")
    made.add_files([str(warehouse / "imported.parquet")])
    with made.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")


def with_an_orc_file(warehouse: Path) -> None:
    list_data_file(table(column(2, "qty"))(warehouse), f"{warehouse}/theirs.orc", FileFormat.ORC)


def with_a_foreign_file(warehouse: Path) -> None:
    list_data_file(table(column(2, "qty"))(warehouse), "s3://payroll/salaries.parquet")


def with_deleted_rows(warehouse: Path) -> None:
    delete_equal(table(column(2, "qty", required=True), rows=[{"id": 1, "qty": 2}])(warehouse), 2, "qty")


def with_a_renamed_key(warehouse: Path) -> None:
    made = table(column(2, "flow_document", StringType()), rows=[{"id": 1, "flow_document": "{}"}])(warehouse)
    with made.update_schema() as update:
        update.rename_column("id", "number")


UPDATING = msgspec.structs.replace(
    selecting(ORDERS, document="flow_document"),
    resource_config={"table": "orders", "delta_updates": False},
    delta_updates=False,
)
LAST_SELECTED = selecting(ORDERS, "note", "qty")
CAST_QTY = {"qty": {"castToString": True}}
NOT_APPLIED = {
    "a field without a type": published(selecting(collection(ID, projection("null", "null")), "null")),
    "a field with too long a name": published(renaming(qty=LONG_NAME)),
    "fields that differ in case": published(selecting(collection(ID, QTY, projection("Qty", "integer")), "qty", "Qty")),
    "a backfill of another materialization's table": published(
        selecting(ORDERS, backfill=1), table(owner=Owner("acme/other", "shop%2Forders.v0")), selecting(ORDERS)
    ),
    "a column to be added": published(in_mode("strict", LAST_SELECTED), table()),
    "a column to be renamed": published(
        in_mode("add_columns", renaming(qty="amount")), table(column(2, "qty")), LAST_SELECTED
    ),
    "columns that exchange their names": published(
        renaming(qty="note", note="qty"), table(column(2, "qty"), column(3, "note", StringType())), LAST_SELECTED
    ),
    "a key that is to have the column of another field": published(
        selecting(ORDERS, field_config={"id": {"column": "qty"}}), table(column(2, "qty")), LAST_SELECTED
    ),
    "a key whose column another program has renamed": published(UPDATING, with_a_renamed_key, UPDATING),
    "a column whose field may be null": published(
        in_mode("strict", selecting(collection(ID, projection("qty", "integer", "null")), "qty")),
        table(column(2, "qty", required=True)),
    ),
    "a column whose field is deselected": published(
        in_mode("add_columns", selecting(ORDERS)), table(column(2, "qty", required=True))
    ),
    "an identifier field that may be null": published(
        selecting(collection(ID, projection("qty", "integer", "null")), "qty"),
        table(column(2, "qty", required=True), identifiers=(2,)),
    ),
    "an identifier field that is deselected": published(
        selecting(ORDERS), table(column(2, "qty", required=True), identifiers=(2,))
    ),
    "a column to be converted": published(
        in_mode("strict", selecting(ORDERS, "qty", field_config=CAST_QTY)), table(column(2, "qty")), LAST_SELECTED
    ),
    "a column to be set aside": published(
        in_mode("add_columns", selecting(ORDERS, "qty")), table(column(2, "qty", DateType())), LAST_SELECTED
    ),
    "a column of text to be converted": published(
        in_mode("add_columns", selecting(ORDERS, "qty")), table(column(2, "qty", StringType())), LAST_SELECTED
    ),
    "somebody else's column": published(
        appending(selecting(ORDERS, "qty")),
        table(column(2, "qty", StringType()), owner=Owner("acme/other", "x")),
        selecting(ORDERS),
    ),
    "a column that partitions depend on": published(selecting(ORDERS, "qty"), with_partitions, LAST_SELECTED),
    "a column that the sort order depends on": published(selecting(ORDERS, "qty"), with_order, LAST_SELECTED),
    "terms of fields that are not selected": published(
        arranged("bucket(4, qty), note, zzz", "qty", selecting(ORDERS, "note")), table()
    ),
    "terms that do not apply": published(arranged("day(id), id_day", "void(id)", selecting(ORDERS, "note"))),
    "partitions that may not change": published(
        in_mode("strict", arranged("id", "id desc", selecting(ORDERS))), table()
    ),
    "a key of another type": published(selecting(collection(projection("id", "boolean"))), table(), selecting(ORDERS)),
    "a key with values that have no equivalents": published(
        selecting(collection(projection("id", "integer"), QTY), field_config={"id": {"column": "key"}}),
        table(column(2, "key", StringType()), rows=[{"id": 1, "key": "one"}]),
        selecting(ORDERS, field_config={"id": {"column": "key"}}),
    ),
    "a file that is not Parquet": published(
        selecting(ORDERS, "qty", field_config=CAST_QTY), with_an_orc_file, LAST_SELECTED
    ),
    "a file in another kind of store": published(selecting(ORDERS, "qty", field_config=CAST_QTY), with_a_foreign_file),
    "a file without field ids": published(selecting(ORDERS, "qty"), without_field_ids),
    "rows deleted by the column's value, and a flag keeps the others": published(
        selecting(ORDERS, "qty", field_config=CAST_QTY), with_deleted_rows, LAST_SELECTED, RETAIN_EXISTING_DATA
    ),
    "rows deleted by the column's value": published(
        selecting(ORDERS, "qty", field_config=CAST_QTY), with_deleted_rows, LAST_SELECTED
    ),
}


@pytest.mark.parametrize("name", NOT_APPLIED)
def test_why_a_task_cannot_be_applied_and_nothing_is_changed(tmp_path: Path, name: str) -> None:
    case = NOT_APPLIED[name]
    case.prepare(tmp_path)
    before = metadata(tmp_path)
    with pytest.raises(ConnectorError) as error:
        Applying(tmp_path, case.new, case.last, feature_flags=case.flags).go_on()
    check_text("apply_errors", name, str(error.value), {str(tmp_path): "…"})
    assert metadata(tmp_path) == before


def metadata(warehouse: Path) -> str:
    catalog = local_catalog(warehouse)
    return catalog.load_table(PATH).metadata_location if catalog.table_exists(PATH) else ""


# Somebody else is at work meanwhile


def target(*names: str) -> Target:
    columns = (NewColumn(name, name, LONG, name == "id", "", name == "id") for name in ("id", *names))
    return Target(PATH, OURS, tuple(columns), {}, replaces=False)


def evolved(catalog: Catalog, plan: Callable[[CatalogEntry], Sequence[TableChange]]) -> None:
    evolve(catalog, PATH, None, plan, alterer())


def alters_it_too(warehouse: Path, found: CatalogEntry) -> Sequence[TableChange]:
    theirs = [f"theirs {number}" for number in range(len(found.table.schema.fields) if found.table else 0)]
    evolved(local_catalog(warehouse), partial(plan_changes, target=target(*theirs)))
    return plan_changes(found, target("ours"))


def makes_a_view_of_it(warehouse: Path, found: CatalogEntry) -> Sequence[TableChange]:
    a_view(warehouse)
    return plan_changes(found, target())


def drops_the_namespace(_: Path, found: CatalogEntry) -> Sequence[TableChange]:
    """After it was found."""
    return plan_changes(replace(found, namespace_exists=True), target())


MEANWHILE: dict[str, tuple[Callable[[Path], object], Any]] = {
    "somebody else always alters the table": (table(), alters_it_too),
    "somebody else has made a view": (nothing, makes_a_view_of_it),
    "somebody else has dropped the namespace": (nothing, drops_the_namespace),
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_what_somebody_else_does_meanwhile_is_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform_changes, "NAMESPACE_PAUSE", 0.0)
    prepare, interfere = MEANWHILE[name]
    prepare(tmp_path)
    with pytest.raises(ConnectorError) as error:
        evolved(local_catalog(tmp_path), partial(interfere, tmp_path))
    check_text("apply_errors", name, str(error.value))
