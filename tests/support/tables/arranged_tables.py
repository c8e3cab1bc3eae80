"""A table whose partition spec and sort order change, in any catalog."""

from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, PrimitiveType, TimestamptzType

from connector.config.terms import parse_partition_by, parse_sort_by
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import TableChange
from connector.evolution.target import NewColumn, Target
from connector.iceberg.perform_changes import evolve
from connector.model.table_identifier import Owner, TableIdentifier
from support.bindings import MATERIALIZATION
from support.tables.local_tables import alterer


def _column(name: str, type_: PrimitiveType) -> NewColumn:
    return NewColumn(name, name, type_, required=False, doc="", is_indispensable=name == "id")


ID: Final = _column("id", LongType())
AT: Final = _column("at.`then`", TimestamptzType())
# What a binding says, one publication after the other, and what is then current: transforms and field ids, columns.
PUBLICATIONS: Final[tuple[Any, ...]] = (
    ("bucket(16, id)", "id", (ID,), [("bucket[16]", 1000, "id")], ["id"]),
    (
        "day(`at.``then```), bucket(16, id)",
        "`at.``then``` desc",
        (ID, AT),
        [("day", 1001, AT.name), ("bucket[16]", 1000, "id")],
        [AT.name],
    ),
    ("", "", (ID, AT), [], []),
    ("bucket(16, id)", "id", (ID, AT), [("bucket[16]", 1000, "id")], ["id"]),
)


def publish(
    catalog: Catalog, path: TableIdentifier, location: str | None, partition_by: str, sort_by: str, *columns: NewColumn
) -> list[TableChange]:
    """Make the table fit a binding with these settings."""
    terms = ArrangementTerms(parse_partition_by(partition_by), parse_sort_by(sort_by))
    owner = Owner(MATERIALIZATION, "orders.v0")
    target = Target(path, owner, columns, {}, replaces=False, settings=BindingSettings(arrangement=terms))
    return evolve(catalog, path, location, partial(plan_changes, target=target), alterer())


def check_arrangements(catalog: Catalog, path: TableIdentifier, location: str | None = None) -> None:
    """Create the table and change its arrangement, and look each time at what another client loads."""
    for partition_by, sort_by, columns, spec, order in PUBLICATIONS:
        assert publish(catalog, path, location, partition_by, sort_by, *columns)
        assert publish(catalog, path, location, partition_by, sort_by, *columns) == []
        table = catalog.load_table(path)
        name_of = table.schema().find_column_name
        assert [(str(f.transform), f.field_id, name_of(f.source_id)) for f in table.spec().fields] == spec
        assert [name_of(field.source_id) for field in table.sort_order().fields] == order
    assert len(table.specs()) == 3, "the first spec was used again"
    assert table.last_partition_id() == 1001
