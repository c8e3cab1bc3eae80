"""A binding, and the column that each of its fields would have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.types import PrimitiveType

from connector.config.values import NameCase
from connector.evolution.arrangement_terms import ArrangementTerms, Source, find_source, name_derived_fields
from connector.evolution.binding_settings import NO_TERMS
from connector.evolution.column_fits import Evolution, Fit
from connector.evolution.field_config import (
    CONTROL_CHARACTERS,
    MAX_NAME,
    NO_CONFIG,
    FieldConfig,
    fold_case,
    is_reserved,
)
from connector.evolution.target import NewColumn
from connector.evolution.type_mapping import choose_type, is_indispensable, is_key, is_required
from protocol.flow import Collection, Projection


@dataclass(frozen=True)
class Candidate:
    """A binding whose fields are to be selected. Apply asks it for the columns of those that are.

    `evolution` is None if apply will create its table. `group_by` are the fields of the key; without them, it has the
    collection's.
    """

    collection: Collection
    field_configs: Mapping[str, FieldConfig]
    delta_updates: bool
    evolution: Evolution | None = None
    group_by: tuple[str, ...] = ()
    # Of the columns when the binding was last applied, by field.
    former_names: Mapping[str, str] = field(default_factory=dict)
    former_keys: tuple[str, ...] = ()  # the fields that were selected as the key then
    one_line_names: bool = False  # its catalog refuses line breaks in names
    arrangement: ArrangementTerms = NO_TERMS
    field_name_case: NameCase = NameCase.PRESERVE

    @cached_property
    def fits(self) -> dict[str, Fit]:
        """How each field gets a column in the existing table; empty if there is none. Keys are fields."""
        if self.evolution is None:
            return {}
        columns = [self.make_column(projection, type_) for projection, type_ in self._with_types]
        return self.evolution.fit_columns(columns)

    @cached_property
    def naming_settings(self) -> dict[str, list[str]]:
        """The settings that name a field, `partition_by` and `sort_by`. Keys are fields."""
        settings: dict[str, list[str]] = {}
        for setting, names in self.arrangement.names.items():
            for named in {source.field for name in names if (source := find_source(name, self._sources))}:
                settings.setdefault(named, []).append(setting)
        return settings

    @cached_property
    def partition_fields(self) -> frozenset[str]:
        """The names, without regard to case, that no new column can have: those of partition fields of the binding,
        and of the existing table, where no column of it has the name."""
        names = set(map(fold_case, name_derived_fields(self.arrangement, self._sources)))
        if self.evolution:
            table = self.evolution.table
            names |= {*map(fold_case, table.partition_fields)} - {fold_case(each.name) for each in table.schema.fields}
        return frozenset(names)

    @cached_property
    def document(self) -> str | None:
        """The field in which standard updates store the root document: one that has a column, else the first."""
        fields = [p.field for p in self.collection.projections if p.ptr == "" and self.has_name(p)]
        return min(fields, key=lambda field: not self._has_column(field), default=None)

    def config(self, projection: Projection) -> FieldConfig:
        """Return the field config of a projection; without settings if the user gave none."""
        return self.field_configs.get(projection.field, NO_CONFIG)

    def is_key(self, projection: Projection) -> bool:
        """Whether the field is part of the key, by the collection or by the group-by of the binding."""
        return is_key(projection, self.collection, self.group_by)

    def is_indispensable(self, projection: Projection) -> bool:
        """Whether the runtime needs the field's location, by the collection, the group-by and the update mode."""
        return is_indispensable(projection, self.collection, self.group_by, delta_updates=self.delta_updates)

    def name(self, projection: Projection) -> str:
        """The name of the column, if it is a new one."""
        return self.config(projection).column_name(projection.field, self.field_name_case)

    def has_name(self, projection: Projection) -> bool:
        """Whether a column can have the field's name."""
        name = self.name(projection)
        is_valid = 1 <= len(name) <= MAX_NAME and not (self.one_line_names and CONTROL_CHARACTERS.search(name))
        return is_valid and not self.is_reserved(projection)

    def is_reserved(self, projection: Projection) -> bool:
        """Whether Iceberg reserves the name of the field's column."""
        return is_reserved(self.name(projection), self.evolution.table.schema if self.evolution else None)

    @property
    def name_rule(self) -> str:
        """What a column's name may be, for an error."""
        return (
            f"1 to {MAX_NAME} characters{', and no line breaks or the like in AWS Glue' if self.one_line_names else ''}"
        )

    def find_claimant(self, projection: Projection) -> Projection:
        """Find the field that gets the column, if the names of several fields' columns differ in upper and lower case
        only."""
        return self._claimants.get(fold_case(self.name(projection)), projection)

    @cached_property
    def _claimants(self) -> dict[str, Projection]:
        claimants: dict[str, Projection] = {}
        for projection, _ in sorted(self._with_types, key=self._claim):
            claimants.setdefault(fold_case(self.name(projection)), projection)
        return claimants

    def _claim(self, typed: tuple[Projection, PrimitiveType]) -> tuple[bool, ...]:
        projection, _ = typed
        fit = self.fits.get(projection.field)
        # The smallest gets the column: False is smaller than True.
        return (
            not self.is_indispensable(projection),
            projection.field not in self.naming_settings,
            self.config(projection).column is None,  # else a user gave it this column
            projection.field not in self.former_names,
            fit is None
            or fit.column is None
            or fit.column.name != self.config(projection).column_name(projection.field),
        )

    @cached_property
    def _sources(self) -> tuple[Source, ...]:
        return tuple(Source(projection.field, self.name(projection)) for projection in self.collection.projections)

    def _has_column(self, field: str) -> bool:
        return field in self.fits and self.fits[field].column is not None

    @property
    def _with_types(self) -> Iterator[tuple[Projection, PrimitiveType]]:
        for projection in self.collection.projections:
            type_ = choose_type(projection, self.config(projection), self.is_key(projection))
            if type_ is not None:
                yield projection, type_

    def make_column(self, projection: Projection, type_: PrimitiveType) -> NewColumn:
        """Make the column of this type that the field needs."""
        former = self.former_names.get(projection.field, "")
        return NewColumn(
            projection.field,
            self.name(projection),
            type_,
            is_required(projection),
            doc="",
            is_indispensable=self.is_indispensable(projection),
            former=former,
            is_key=self._is_selected_as_key(projection),
        )

    def _is_selected_as_key(self, projection: Projection) -> bool:
        """Whether the field will be selected as a part of the key, and not as a value. The runtime selects one field of
        each location of the key, and always the same one. Before it has selected any, each may be the one."""
        if self.group_by:
            return projection.field in self.group_by
        if projection.ptr not in self.collection.key:
            return False
        siblings = {each.field for each in self.collection.projections if each.ptr == projection.ptr}
        return projection.field in self.former_keys or siblings.isdisjoint(self.former_keys)
