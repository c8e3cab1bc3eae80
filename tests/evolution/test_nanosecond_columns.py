"""Which columns keep nanoseconds: new ones, in tables of format version 3, if the setting is on."""

from functools import partial
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzNanoType,
    TimestamptzType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from connector.config.terms import parse_partition_by, parse_sort_by
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.plan_changes import plan_changes
from connector.evolution.target import NewColumn, Target
from connector.evolution.type_changes import TypeChange, find_type_change
from connector.host.errors import UserError
from connector.iceberg.perform_changes import evolve
from connector.model.table_identifier import Owner, TableIdentifier
from support.bindings import MATERIALIZATION
from support.snapshots import check_text
from support.tables.local_tables import alterer

PATH = TableIdentifier("shop", "events")
V0, V1 = (Owner(MATERIALIZATION, f"events.v{backfill}") for backfill in (0, 1))
MICROS, NANOS = TimestamptzType(), TimestamptzNanoType()


def column(name: str, type_: PrimitiveType) -> NewColumn:
    return NewColumn(name, name, type_, name == "id", "", name == "id", former=name)


def fit(catalog: Catalog, *names: str, at: PrimitiveType = MICROS, **changed: Any) -> dict[str, IcebergType]:
    """The types of the table's columns after a publication with date-times in these fields."""
    columns = (column("id", LongType()), *(column(name, at) for name in names))
    target = Target(PATH, **{"owner": V0, "columns": columns, "properties": {}, "replaces": False, **changed})
    location = f"{catalog.properties['warehouse']}/shop/events"
    evolve(catalog, PATH, location, partial(plan_changes, target=target), alterer())
    return {field.name: field.field_type for field in catalog.load_table(PATH).schema().fields[1:]}


def test_an_existing_column_keeps_its_unit_and_a_new_one_has_that_of_the_setting(catalog: Catalog) -> None:
    assert fit(catalog, "at", format_version=3) == {"at": MICROS}
    assert fit(catalog, "at", "seen", keeps_nanoseconds=True) == {"at": MICROS, "seen": NANOS}
    assert fit(catalog, "at", "seen", "sent") == {"at": MICROS, "seen": NANOS, "sent": MICROS}


def test_a_table_of_version_2_keeps_microseconds(catalog: Catalog) -> None:
    assert fit(catalog, "at", keeps_nanoseconds=True, format_version=2) == {"at": MICROS}
    assert fit(catalog, "at", "seen", keeps_nanoseconds=True, format_version=3) == {"at": MICROS, "seen": MICROS}


def test_a_backfill_gives_columns_the_unit_of_the_setting(catalog: Catalog) -> None:
    fit(catalog, "at", format_version=3)
    fit(catalog, "at", keeps_nanoseconds=True, owner=V1, replaces=True)
    newest = catalog.load_table(PATH).metadata.schemas[-1]
    assert newest.find_field("at").field_type == NANOS


def test_a_backfill_with_the_setting_makes_a_table_of_version_2_anew(catalog: Catalog) -> None:
    assert fit(catalog, "at", format_version=2) == {"at": MICROS}
    assert fit(catalog, "at", keeps_nanoseconds=True, format_version=3, owner=V1, replaces=True) == {"at": NANOS}
    assert catalog.load_table(PATH).metadata.format_version == 3


def test_a_new_table_of_version_2_has_microseconds_also_in_the_place_of_one_of_version_3(catalog: Catalog) -> None:
    fit(catalog, "at", keeps_nanoseconds=True, format_version=3)
    backfill: dict[str, Any] = {"owner": V1, "replaces": True, "always_drops": True}
    assert fit(catalog, "at", keeps_nanoseconds=True, format_version=2, **backfill) == {"at": MICROS}
    assert catalog.load_table(PATH).metadata.format_version == 2


def test_a_table_cannot_be_partitioned_by_nanoseconds_themselves(catalog: Catalog) -> None:
    """PyIceberg writes the values of such partitions to manifests that it does not read."""
    by_time, sorted_by_time = parse_partition_by("at"), parse_sort_by("at")
    settings = BindingSettings(arrangement=ArrangementTerms(by_time, sorted_by_time))
    with pytest.raises(UserError) as refused:
        fit(catalog, "at", keeps_nanoseconds=True, format_version=3, settings=settings)
    check_text("apply_errors", "a partition by nanoseconds", str(refused.value))
    settings = BindingSettings(arrangement=ArrangementTerms(parse_partition_by("hour(at)"), sorted_by_time))
    assert fit(catalog, "at", keeps_nanoseconds=True, format_version=3, settings=settings) == {"at": NANOS}


def test_pyiceberg_still_does_not_read_nanoseconds_in_manifests() -> None:
    """Once it does, tables can be partitioned by them."""
    schema = Schema(NestedField(1, "at", NANOS, required=True))
    written: Any = AvroSchemaConversion().iceberg_to_avro(schema, "manifest")
    with pytest.raises(ValueError, match="timestamp-nanos"):
        AvroSchemaConversion().avro_to_iceberg(written)


def test_text_in_the_place_of_nanoseconds_is_a_new_column(catalog: Catalog) -> None:
    assert find_type_change(NANOS, StringType()) is TypeChange.SET_ASIDE
    fit(catalog, "at", format_version=3, keeps_nanoseconds=True)
    found = fit(catalog, "at", at=StringType(), keeps_nanoseconds=True)
    assert sorted(map(str, found.values())) == ["string", "timestamptz_ns"]
