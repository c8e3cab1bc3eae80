"""Which changes of a table are refused, and why. Each refusal also says what to do instead."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType

from connector.config.values import RETAIN_EXISTING_DATA, SchemaEvolution
from connector.evolution.arrangement_changes import ArrangementChange, SetPartitionSpec, SetSortOrder
from connector.evolution.arrangement_terms import PARTITION_BY, SORT_BY, Source, find_source
from connector.evolution.binding_settings import DEFAULT_SETTINGS, BindingSettings, IdentifierFields
from connector.evolution.existing_table import ExistingTable
from connector.evolution.field_config import COLUMN_SETTING, DECIMAL_SETTING, fold_case, name_nested
from connector.evolution.property_changes import SetTableProperties
from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ColumnChange,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    SetIdentifierFields,
    WidenColumn,
)
from connector.evolution.target import NewColumn
from connector.evolution.type_changes import loses_texts, name_lost_text

_ChangeOfType: TypeAlias = WidenColumn | ConvertColumn | SetAsideColumn

_NUMERIC: Final = (LongType, DoubleType, DecimalType)

# Identifier fields always follow the binding's key and its `delta_updates`. No column changes, and other engines would
# read a false claim. Table properties are no part of the schema.
_ALWAYS: Final = (SetIdentifierFields, SetTableProperties)
ALLOWED: Final[Mapping[SchemaEvolution, tuple[type[Alteration], ...]]] = {
    SchemaEvolution.STRICT: _ALWAYS,
    SchemaEvolution.ADD_COLUMNS: (*_ALWAYS, AddColumn),
    SchemaEvolution.FULL: get_args(Alteration),
}

_EFFECTS: Final[Mapping[type[Alteration], str]] = {
    WidenColumn: "widens the column in place",
    ConvertColumn: "converts its values",
    SetAsideColumn: "renames the column and adds a new one",
}


_SORT_ORDER: Final = "the sort order"
_AWAITED_SORT_ORDER: Final = f"until the backfill has rows, {_SORT_ORDER}"
_REMEDIES: Final = {
    _SORT_ORDER: f"set {SORT_BY} in the binding's config",
    _AWAITED_SORT_ORDER: "publish the change when the backfill has rows",
}
# By change: its setting, and the part of the table that it changes.
_KEPT: Final[Mapping[type[ArrangementChange], tuple[str, str]]] = {
    SetPartitionSpec: (PARTITION_BY, "partition spec"),
    SetSortOrder: (SORT_BY, "sort order"),
}


@dataclass(frozen=True)
class ChangeRules:
    """How far a binding of a materialization may change an existing table."""

    table: ExistingTable
    materialization: str
    settings: BindingSettings = DEFAULT_SETTINGS
    is_new: bool = False  # the task had no such binding before

    @property
    def _mode(self) -> SchemaEvolution:
        return self.settings.schema_evolution

    @property
    def sets_identifier_fields(self) -> bool:
        """Whether the table's identifier fields follow the binding. Those of before prevent no change then."""
        is_kept = self.settings.identifier_fields is IdentifierFields.KEPT
        return self.table.is_of(self.materialization) and not is_kept

    @property
    def can_be_replaced(self) -> bool:
        """Whether a higher backfill counter makes apply replace the table's rows, and these are the task's to replace.
        Flow may raise the counter unasked. So the rows of a table that no task has created count as those of others,
        although apply replaces them if a person asks for it. Those of Estuary's S3 Iceberg connector are the task's."""
        return self._has_own_binding and not self.settings.retains_rows

    @property
    def is_taken_over(self) -> bool:
        """Whether Estuary's S3 Iceberg connector has made the table for the task."""
        return self.table.taken_over == self.materialization

    @property
    def _is_awaited(self) -> bool:
        """Whether the table gets its columns with the first rows of a backfill."""
        return self.table.generation_of(self.materialization).is_awaited

    @property
    def _has_own_binding(self) -> bool:
        return self.table.has_rows_of(self.materialization) and not self.is_new

    def allows(self, change: type[Alteration]) -> bool:
        """Whether the mode of schema evolution allows a change of this kind."""
        return change in ALLOWED[self._mode]

    def explain_refusal(self, change: ColumnChange, wanted: NewColumn, column: NestedField | None) -> str:
        """Say why a change that a field needs is refused; "" if it is allowed."""
        match change:
            case AddColumn() if fold_case(wanted.name) in name_nested(self.table.schema):
                return (
                    f"Field {wanted.field!r} cannot have a column {wanted.name!r}: a part of another column of the "
                    f'table has this name. Give it another column with {{"{COLUMN_SETTING}": "…"}} in its field config.'
                )
            case AddColumn() if (wanted.is_key or wanted.is_document) and self._has_updated_rows:
                return self._explain_refused_place(wanted)
            case AddColumn() if not self.allows(AddColumn):
                return (
                    f"Field {wanted.field!r} has no column in the table, and schema_evolution is {self._mode}: "
                    f"set it to {SchemaEvolution.ADD_COLUMNS}, or add a column {wanted.name!r} of type {wanted.type}."
                )
            case RenameColumn(name, new_name) if not self.allows(RenameColumn):
                return (
                    f"Field {wanted.field!r} has the column {name!r}, and its field config asks for {new_name!r}: set "
                    f"schema_evolution to {SchemaEvolution.FULL}, which renames the column, or keep its name."
                )
            case MakeOptional() if column:
                return self._explain_not_null(column, "and its field may now be null: require a value in the schema")
            case WidenColumn() | ConvertColumn() | SetAsideColumn() if column:
                return self._explain_refused_type(change, wanted, column)
        return ""

    @property
    def _has_updated_rows(self) -> bool:
        """Whether the table has rows of the task that are found by their keys, to be updated. Those of others may have
        neither the key nor a document."""
        may_have_own = self.table.has_rows and (not self.is_new or self.table.is_of(self.materialization))
        return may_have_own and self.settings.identifier_fields is IdentifierFields.KEY

    def _explain_refused_place(self, wanted: NewColumn) -> str:
        """Say why a key or a root document may not get a new column, in which older rows would have no values."""
        if wanted.former:
            return (
                f"Field {wanted.field!r} had the column {wanted.former!r}, which the table has no more: another "
                "program has dropped or renamed it. A key or a root document must be in the same column for all "
                "rows: rename the column back, or name it with "
                f'{{"{COLUMN_SETTING}": "…"}} in the field config, or {self.rewrite}.'
            )
        column = wanted.location_column
        keep = f"keep the column {column!r} with {_column_config(column)} in the field config, or " if column else ""
        return (
            f"Field {wanted.field!r} has no column in the table, and older rows would have no value in a new one. A "
            f"key or a root document must be in the same column for all rows: {keep}{self.rewrite}."
        )

    def explain_refused_move(self, wanted: NewColumn) -> str:
        """Say why a key or a root document may not get another column that the table has already."""
        column = wanted.location_column or wanted.former
        return (
            f"Field {wanted.field!r} has the column {column!r}, and is to have {wanted.name!r}, which has "
            "values of its own. But a key or a root document must be in the same column for all rows: keep its "
            f"column, or {self.rewrite}."
        )

    @property
    def rewrite(self) -> str:
        """What makes all rows new."""
        if self.can_be_replaced:
            return "increment the binding's backfill, which replaces the table's rows"
        if self._has_own_binding:
            return f"remove the feature flag {RETAIN_EXISTING_DATA} and backfill the binding, which replaces its rows"
        return "choose another table name for the binding"

    def explain_required(self, column: NestedField) -> str:
        """Say why the field of a required column must stay selected; "" if the column may become optional."""
        return self._explain_not_null(column, "and cannot go without values: select its field")

    def _explain_not_null(self, column: NestedField, why_and_remedy: str) -> str:
        """Say why a required column may not become optional; "" if it may."""
        schema = self.table.schema
        within = [each for each in schema.identifier_field_ids if each in Schema(column).field_ids]
        if within and not self.sets_identifier_fields:
            name = schema.find_column_name(within[0])  # of a part of the column, if that is a struct
            return (
                f"Column {name!r} is one of the table's identifier fields, {why_and_remedy}, or take it out of "
                "them (in Spark: ALTER TABLE … DROP IDENTIFIER FIELDS …)."
            )
        if not self.allows(MakeOptional):
            return (
                f"Column {column.name!r} is NOT NULL, {why_and_remedy}, or set schema_evolution to "
                f"{SchemaEvolution.FULL}, which drops the NOT NULL."
            )
        return ""

    def find_arrangement_problems(
        self, changes: Iterable[ArrangementChange], column_ids: Mapping[str, int | None]
    ) -> Iterator[str]:
        """Say why the partition spec or the sort order may not change, a sentence for each change that is refused.
        `column_ids` are those of the columns that the changes name; None for a column that the table gets."""
        current = self.table.current_ids
        awaited = {name for name, number in column_ids.items() if self._is_awaited and number not in current}
        for change in changes:
            setting, kept = _KEPT[type(change)]
            if not self.allows(type(change)):
                yield (
                    f"{setting} differs from the table's {kept}, and schema_evolution is {self._mode}: set it to "
                    f"{SchemaEvolution.FULL}, which changes the {kept} for new rows, or remove {setting}, so that the "
                    "table keeps its own."
                )
            elif needed := sorted(change.columns & awaited):
                yield (
                    f"{setting} names {', '.join(map(repr, needed))}, which the table gets with the first rows of its "
                    f"backfill: take the change of {setting} back until it has them, or {self.rewrite}."
                )

    def _explain_refused_type(self, change: _ChangeOfType, wanted: NewColumn, column: NestedField) -> str:
        obstacle, remedies = self._find_obstacle(change, wanted, column)
        if obstacle is None:
            return ""
        remedies.append(self.rewrite)
        if not wanted.is_indispensable:
            remedies.append("deselect the field")
        if column.field_type == StringType():
            remedies.append('keep its values as text with {"castToString": true} in its field config')
        if isinstance(column.field_type, DecimalType) and isinstance(wanted.type, _NUMERIC):
            remedies.append(f"keep the column as it is with {_decimal_config(column.field_type)} in its field config")
        return (
            f"Field {wanted.field!r} has a column of type {column.field_type}, but its schema now needs {wanted.type}"
            f"{obstacle}: {', or '.join(remedies)}."
        )

    def _find_obstacle(
        self, change: _ChangeOfType, wanted: NewColumn, column: NestedField
    ) -> tuple[str | None, list[str]]:
        """Find why the type cannot change, and what helps in this case only; None if it can change."""
        if not isinstance(change, WidenColumn):
            if not wanted.former and not self.table.has_rows_of(self.materialization):
                other_name = f'give it another column with {{"{COLUMN_SETTING}": "…"}} in its field config'
                return ", and this task did not create the column", [other_name]
            if dependent := self._find_dependent(column.field_id, wanted):
                remedies = [_REMEDIES[dependent]] if dependent in _REMEDIES else []
                return f", and {dependent} of the table depends on the column", remedies
            if wanted.is_indispensable and isinstance(change, SetAsideColumn):
                return (
                    ", to which its values cannot be converted, and a key or a root document must be in the same "
                    "column for all rows",
                    [],
                )
            if self.can_be_replaced and wanted.had_strings and loses_texts(column.field_type, wanted.type):
                text, value = name_lost_text(column.field_type)
                return f', and the column has not kept the texts of older documents ("{text}" is {value} there)', []
        if not self.allows(type(change)):
            return "", [f"set schema_evolution to {SchemaEvolution.FULL}, which {_EFFECTS[type(change)]}"]
        return None, []

    def _find_dependent(self, column_id: int, wanted: NewColumn) -> str:
        """Find what prevents the change of a column's type; "" if nothing does."""
        if pinned := self.table.pinned.get(column_id):
            return pinned
        is_key = self.settings.identifier_fields is IdentifierFields.KEY and wanted.is_key
        if column_id in self.table.schema.identifier_field_ids and (is_key or not self.sets_identifier_fields):
            return "an identifier field"
        # Its converted values do not tell the keys of older rows apart: 7 becomes "7". So it is kept, also if the table
        # has no identifier fields, because a part of the key cannot be one, or because the table is another program's.
        if is_key:
            return "the key"
        if all(field.source_id != column_id for field in self.table.arrangement.sort):
            return ""
        arrangement, sources = self.settings.arrangement, [Source(wanted.field, wanted.name)]
        if arrangement.sort_by is None:
            return _SORT_ORDER
        # A catalog knows no sort order of a column that is not current yet.
        is_kept = self._is_awaited and any(find_source(name, sources) for name in arrangement.names[SORT_BY])
        return _AWAITED_SORT_ORDER if is_kept else ""


def _column_config(column: str) -> str:
    return f'{{"{COLUMN_SETTING}": {json.dumps(column, ensure_ascii=False)}}}'


def _decimal_config(column_type: DecimalType) -> str:
    precision, scale = column_type.root
    return f'{{"{DECIMAL_SETTING}": {{"precision": {precision}, "scale": {scale}}}}}'
