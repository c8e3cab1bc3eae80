"""The partition specs and sort orders of a table: the current ones, and the updates that make others current."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import UnknownTransform, VoidTransform, parse_transform
from pyiceberg.types import IcebergType

from connector.config.terms import SortTerm, Term
from connector.evolution.arrangement_terms import name_partition_field
from connector.evolution.kept_columns import keep_columns
from connector.host.errors import UserError
from connector.model import binding as model
from connector.model.table_identifier import TableIdentifier

_LAST_ADDED: Final = -1

log = logging.getLogger(__name__)


def read_arrangement(table: Table) -> model.Arrangement:
    """Return the current partition spec and sort order, with all of their fields."""
    spec, order = table.spec(), _current_order(table)
    return model.Arrangement(
        spec.spec_id,
        tuple(model.PartitionField(field.source_id, str(field.transform)) for field in spec.fields),
        order.order_id,
        tuple(
            model.SortField(
                field.source_id,
                str(field.transform),
                field.direction is SortDirection.DESC,
                field.null_order is NullOrder.NULLS_FIRST,
            )
            for field in order.fields
        ),
    )


def check_partition_spec(table: Table) -> None:
    """Raise UserError if the values of the current partition spec cannot be made."""
    types = _column_types(table.schema())
    for field in table.spec().fields:
        column_type = types.get(field.source_id)
        if isinstance(field.transform, VoidTransform):
            continue
        if isinstance(field.transform, UnknownTransform):
            wrong = "has a transform that this connector does not know"
        elif column_type is None:
            wrong = "is made from a column that the table no longer has"
        elif not field.transform.can_transform(column_type):
            wrong = f"has the transform {field.transform}, which does not apply to its column of type {column_type}"
        else:
            continue
        raise UserError(
            f"Table {TableIdentifier.of(table)}: its partition field {field.name!r} {wrong}. Remove the partition "
            "field (in Spark: ALTER TABLE … DROP PARTITION FIELD …), or choose another table name."
        )


def find_arrangement(table: Table, written: Collection[int]) -> model.Arrangement:
    """Return how rows of a binding are arranged, which writes the columns with these ids.

    Other columns are null in all of its rows, so rows are not sorted by them. UserError if the values of the partition
    spec cannot be made. If those of the sort order cannot be made, rows are not sorted. The values of columns within
    written structs cannot.
    """
    check_partition_spec(table)
    _check_defaults(table, written)
    arrangement = read_arrangement(table)
    whole = Schema(*(column for column in table.schema().fields if column.field_id in written))
    within = {*_column_types(whole)} - {*written}
    types = {number: each for number, each in _column_types(table.schema()).items() if number not in within}
    for field in arrangement.sort:
        column_type, transform = types.get(field.source_id), parse_transform(field.transform)
        if column_type is None or isinstance(transform, UnknownTransform) or not transform.can_transform(column_type):
            log.warning(
                "table %s: rows are not sorted: its sort order has the transform %s of column %d, which this "
                "connector cannot make",
                TableIdentifier.of(table),
                field.transform,
                field.source_id,
            )
            return replace(arrangement, sort_order_id=UNSORTED_SORT_ORDER.order_id, sort=())
    return replace(arrangement, sort=tuple(field for field in arrangement.sort if field.source_id in written))


def find_arrangement_of_all(table: Table) -> model.Arrangement:
    """Return how rows with all columns of the table are arranged. UserError as in `find_arrangement`."""
    return find_arrangement(table, {column.field_id for column in table.schema().fields})


def _check_defaults(table: Table, written: Collection[int]) -> None:
    """Raise UserError if rows would be in the partition of null, but readers would see another value: a default."""
    columns = {column.field_id: column for column in table.schema().fields if column.field_id not in written}
    for field in table.spec().fields:
        column = columns.get(field.source_id)
        if column and column.initial_default is not None and not isinstance(field.transform, VoidTransform):
            raise UserError(
                f"Table {TableIdentifier.of(table)}: its partition field {field.name!r} is made from the column "
                f"{column.name!r}, which has a default value, and which the binding does not write. Readers would not "
                "find its rows. Select a field for this column, or remove the partition field (in Spark: ALTER TABLE … "
                "DROP PARTITION FIELD …)."
            )


def make_partition_spec(schema: Schema, terms: Sequence[Term]) -> PartitionSpec:
    """Make the first partition spec of a table. The names of the terms are those of columns."""
    return PartitionSpec(
        *(
            PartitionField(
                _source_id(schema, term.name), number, parse_transform(term.full_transform), name_partition_field(term)
            )
            for number, term in enumerate(terms, start=PARTITION_FIELD_ID_START)
        )
    )


def make_sort_order(schema: Schema, terms: Sequence[SortTerm]) -> SortOrder:
    """Make the first sort order of a table. The names of the terms are those of columns."""
    return SortOrder(*_sort_fields(schema, terms)) if terms else UNSORTED_SORT_ORDER


def require_arrangement(table: Table) -> tuple[TableRequirement, ...]:
    """Require that no other partition spec and no other sort order became current since the table was loaded."""
    return (
        AssertDefaultSpecId(default_spec_id=table.metadata.default_spec_id),
        AssertLastAssignedPartitionId(last_assigned_partition_id=table.metadata.last_partition_id),
        AssertDefaultSortOrderId(default_sort_order_id=table.metadata.default_sort_order_id),
    )


def new_partition_spec(table: Table, schema: Schema, terms: Sequence[Term]) -> tuple[TableUpdate, ...]:
    """Make a partition spec with these fields the current one. The table may have it already.

    A field that an earlier spec had keeps its id, as Iceberg's specification demands, and its name.
    """
    specs = table.specs()
    wanted = [(_source_id(schema, term.name), term.full_transform) for term in terms]
    for spec in specs.values():
        if [_identify(field) for field in spec.fields] == wanted:
            return (SetDefaultSpecUpdate(spec_id=spec.spec_id),)
    columns = {column.name.lower(): column.field_id for column in schema.fields}
    earlier = {_identify(field): field for spec in specs.values() for field in spec.fields}
    names = {field.name for field in earlier.values()}
    ids = count(table.last_partition_id() + 1)
    fields = []
    for term, identity in zip(terms, wanted, strict=True):
        field = earlier.get(identity)
        # Columns may have been renamed since, so that another column has the name of the partition field or its source.
        if field is None or columns.get(field.name.lower(), field.source_id) != field.source_id:
            number, name = next(ids), name_partition_field(term)
            name = f"{name}_{number}" if name in names else name
            field = PartitionField(identity[0], number, parse_transform(term.full_transform), name)
        fields.append(field)
    added = PartitionSpec(*fields, spec_id=1 + max(specs))
    return (AddPartitionSpecUpdate(spec=added), SetDefaultSpecUpdate(spec_id=_LAST_ADDED))


def new_sort_order(table: Table, schema: Schema, terms: Sequence[SortTerm]) -> tuple[TableUpdate, ...]:
    """Make a sort order with these fields the current one. The table may have it already."""
    orders = table.sort_orders()
    fields = _sort_fields(schema, terms)
    same = next((order.order_id for order in orders.values() if order.fields == fields), None)
    if same is not None:
        return (SetDefaultSortOrderUpdate(sort_order_id=same),)
    if not fields:  # Iceberg reserves an id for it
        order_id = UNSORTED_SORT_ORDER.order_id
        return (AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER), SetDefaultSortOrderUpdate(sort_order_id=order_id))
    order = SortOrder(*fields, order_id=1 + max(orders, default=UNSORTED_SORT_ORDER.order_id))
    return (AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=_LAST_ADDED))


def keep_sources(table: Table, schema: Schema) -> Schema:
    """Return the schema of a backfill with the table's columns that its partition specs and its sort order need.

    Another engine may have set these at any time before the first commit. Java reads no table whose partition spec or
    sort order lacks a source.
    """
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    return keep_columns(schema, table.schema(), sources | {field.source_id for field in _current_order(table).fields})


def keep_sort_order(table: Table, sort_order_id: int | None, converted: Collection[int]) -> int:
    """Return the sort order of a file whose rows were rewritten in their order. 0, which means none, if a column of
    the order is among the `converted` ones: other values may have another order."""
    order = table.sort_orders().get(sort_order_id or 0)
    return order.order_id if order and not any(field.source_id in converted for field in order.fields) else 0


def _identify(field: PartitionField) -> tuple[int, str]:
    """Return the source and the transform: a table has one field id for both."""
    return field.source_id, str(field.transform)


def _sort_fields(schema: Schema, terms: Sequence[SortTerm]) -> list[SortField]:
    return [
        SortField(
            _source_id(schema, each.term.name),
            parse_transform(each.term.full_transform),
            SortDirection.DESC if each.is_descending else SortDirection.ASC,
            NullOrder.NULLS_FIRST if each.nulls_first else NullOrder.NULLS_LAST,
        )
        for each in terms
    ]


def _current_order(table: Table) -> SortOrder:
    return table.metadata.sort_order_by_id(table.metadata.default_sort_order_id) or UNSORTED_SORT_ORDER


def _source_id(schema: Schema, name: str) -> int:
    return next(column.field_id for column in schema.fields if column.name == name)


def _column_types(schema: Schema) -> dict[int, IcebergType]:
    """Return the types of all columns by their ids, also of those within structs."""
    return {number: column.field_type for number, column in index_by_id(schema).items()}
