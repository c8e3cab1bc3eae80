"""A binding, its fields, and the column that each of them would have."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.types import PrimitiveType, StringType

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
    name_columns,
    parse_field_configs,
)
from connector.evolution.target import NewColumn
from connector.evolution.type_mapping import (
    choose_type,
    is_required,
    is_text_of_public_connector,
    list_types_besides_null,
)
from protocol.flow import Collection, FieldSelection, MaterializationBinding, Projection


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
    last: MaterializationBinding | None = None  # the binding as it was last applied
    former_strings: frozenset[str] = frozenset()  # from `name_former_strings`; only to validate
    one_line_names: bool = False  # its catalog refuses line breaks in names
    arrangement: ArrangementTerms = NO_TERMS
    field_name_case: NameCase = NameCase.PRESERVE

    @cached_property
    def former_names(self) -> dict[str, str]:
        """The names of the columns that the binding had before, by field."""
        return name_columns(self.last.field_selection) if self.last else {}

    @cached_property
    def former_locations(self) -> dict[str, str]:
        """The columns that had the key and the root document before, with standard updates, by JSON pointer."""
        last, names = self.last, self.former_names
        if last is None or last.delta_updates or last.collection is None:
            return {}
        fields = {*last.field_selection.keys, last.field_selection.document}
        return {each.ptr: names[each.field] for each in last.collection.projections if each.field in fields}

    @property
    def former_keys(self) -> tuple[str, ...]:
        """The fields that were selected as the key before."""
        return self.last.field_selection.keys if self.last else ()

    @cached_property
    def fields(self) -> "tuple[CandidateField, ...]":
        """The fields of the binding, in the order of the projections."""
        return tuple(CandidateField(self, projection) for projection in self.collection.projections)

    @cached_property
    def fits(self) -> dict[str, Fit]:
        """How each field gets a column in the existing table; empty if there is none. Keys are fields."""
        if self.evolution is None:
            return {}
        return self.evolution.fit_columns(
            [each.make_column(each.type) for each in self.fields if each.type is not None]
        )

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
        documents = [each for each in self.fields if each.is_document and each.has_name]
        first = min(documents, key=lambda each: each.fit is None or each.fit.column is None, default=None)
        return first.projection.field if first else None

    @property
    def name_rule(self) -> str:
        """What a column's name may be, for an error."""
        return (
            f"1 to {MAX_NAME} characters{', and no line breaks or the like in AWS Glue' if self.one_line_names else ''}"
        )

    @cached_property
    def claimants(self) -> "dict[str, CandidateField]":
        """The field that gets each column, if the names of several fields' columns differ in upper and lower case only.
        Keys are names without regard to case."""
        claimants: dict[str, CandidateField] = {}
        for each in sorted((each for each in self.fields if each.type is not None), key=_claim):
            claimants.setdefault(fold_case(each.name), each)
        return claimants

    @cached_property
    def _sources(self) -> tuple[Source, ...]:
        return tuple(Source(each.projection.field, each.name) for each in self.fields)


@dataclass(frozen=True)
class CandidateField:
    """A field of a binding, and the column that it would have."""

    candidate: Candidate
    projection: Projection

    @property
    def config(self) -> FieldConfig:
        """Its field config; without settings if the user gave none."""
        return self.candidate.field_configs.get(self.projection.field, NO_CONFIG)

    @property
    def name(self) -> str:
        """The name of its column, if it is a new one."""
        return self.config.column_name(self.projection.field, self.candidate.field_name_case)

    @property
    def has_name(self) -> bool:
        """Whether a column can have the name."""
        has_line_break = self.candidate.one_line_names and CONTROL_CHARACTERS.search(self.name)
        return 1 <= len(self.name) <= MAX_NAME and not has_line_break and not self.is_reserved

    @property
    def is_reserved(self) -> bool:
        """Whether Iceberg reserves the name."""
        evolution = self.candidate.evolution
        return is_reserved(self.name, evolution.table.schema if evolution else None)

    @property
    def type(self) -> PrimitiveType | None:
        """The type of its column; None if only null is allowed."""
        return choose_type(self.projection, self.config, self.has_key_location)

    @property
    def json_types(self) -> frozenset[str]:
        """The JSON types of its values, besides null."""
        return list_types_besides_null(self.projection.inference)

    @property
    def fit(self) -> Fit | None:
        """How it gets a column in the existing table; None if there is no table, or no type."""
        return self.candidate.fits.get(self.projection.field)

    @property
    def has_key_location(self) -> bool:
        """Whether its location is part of the key, by the collection or by the group-by of the binding. All fields of
        the location have the same type, selected as key or not."""
        return self.projection.ptr in self.candidate.collection.key or self.projection.field in self.candidate.group_by

    @property
    def is_document(self) -> bool:
        """Whether it is the root document."""
        return self.projection.ptr == ""

    @property
    def is_indispensable(self) -> bool:
        """Whether the runtime needs its location: it is part of the key, or the root document of standard updates."""
        return self.has_key_location or (self.is_document and not self.candidate.delta_updates)

    @property
    def naming_settings(self) -> list[str]:
        """The settings that name it: `partition_by`, `sort_by`."""
        return self.candidate.naming_settings.get(self.projection.field, [])

    @property
    def claimant(self) -> "CandidateField":
        """The field that gets the column: another one if the names of their columns differ in upper and lower case
        only."""
        return self.candidate.claimants.get(fold_case(self.name), self)

    @property
    def has_claim(self) -> bool:
        """Whether it is the field that gets the column."""
        return self.claimant.projection == self.projection

    def make_column(self, type_: PrimitiveType) -> NewColumn:
        """Make the column of this type that the field needs."""
        is_located = self._is_selected_as_key or self.is_document
        former = self.candidate.former_names.get(self.projection.field, "")
        return NewColumn(
            self.projection.field,
            self.name,
            type_,
            is_required(self.projection),
            doc="",
            is_indispensable=self.is_indispensable,
            former=former,
            is_key=self._is_selected_as_key,
            is_document=self.is_document,
            may_stay_text=is_text_of_public_connector(self.projection, self.config, self.has_key_location),
            had_strings=not self.candidate.former_strings.isdisjoint(map(fold_case, (self.name, former))),
            location_column=self.candidate.former_locations.get(self.projection.ptr, "") if is_located else "",
        )

    @property
    def _is_selected_as_key(self) -> bool:
        """Whether the field will be selected as a part of the key, and not as a value. The runtime selects one field of
        each location of the key, and always the same one. Before it has selected any, each may be the one."""
        candidate, projection = self.candidate, self.projection
        if candidate.group_by:
            return projection.field in candidate.group_by
        if not self.has_key_location:
            return False
        siblings = {each.field for each in candidate.collection.projections if each.ptr == projection.ptr}
        return projection.field in candidate.former_keys or siblings.isdisjoint(candidate.former_keys)


def has_other_key(selection: FieldSelection, collection: Collection, last: MaterializationBinding | None) -> bool:
    """Whether a binding with standard updates gets a key of other locations than before, or in another order."""
    if last is None or last.delta_updates or last.collection is None:
        return False
    now, before = ({p.field: p.ptr for p in each.projections} for each in (collection, last.collection))
    return [now[field] for field in selection.keys] != [before[field] for field in last.field_selection.keys]


def name_former_strings(last: MaterializationBinding | None) -> frozenset[str]:
    """The names, without regard to case, of the columns of other types for which the last published collection allowed
    strings.

    The columns that it made texts are left out, also if apply has not converted them yet. But a column whose field was
    not selected then may have another type since the field was. So it counts, if it is not another field's.
    """
    if last is None or last.collection is None:
        return frozenset()
    selection = last.field_selection
    configs = parse_field_configs(selection.field_config)
    names = {field: fold_case(name) for field, name in name_columns(selection).items()}

    def name_if_not_text(each: Projection) -> str:
        config = configs.get(each.field, NO_CONFIG)
        if each.field not in names:
            name = fold_case(config.column_name(each.field))
            return "" if name in names.values() else name
        return "" if choose_type(each, config, each.field in selection.keys) == StringType() else names[each.field]

    allowed = (each for each in last.collection.projections if "string" in each.inference.types)
    return frozenset(filter(None, map(name_if_not_text, allowed)))


def _claim(each: CandidateField) -> tuple[bool, ...]:
    """Return what is compared to choose the field that gets a column. The smallest gets it: False is smaller than
    True."""
    field, fit = each.projection.field, each.fit
    return (
        not each.is_indispensable,
        not each.naming_settings,
        each.config.column is None,  # else a user gave it this column
        field not in each.candidate.former_names,
        fit is None or fit.column is None or fit.column.name != each.config.column_name(field),
    )
