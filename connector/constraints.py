"""What may become of every field of a binding: pure, from its collection and the columns that its table has."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, PrimitiveType

from connector.table_change import matching_columns
from connector.type_mapping import (
    column_type,
    incompatible,
    is_compatible,
    is_key,
    is_numeric_string,
    is_required,
    types_besides_null,
)
from protocol.flow import Collection, Constraint, ConstraintType, Json, Projection, ProjectionConstraint

MAX_NAME: Final = 255  # characters

# The older form of a response has room for one constraint per field: the first of these.
SEVERITY: Final = (
    ConstraintType.INCOMPATIBLE,
    ConstraintType.FIELD_FORBIDDEN,
    ConstraintType.FIELD_REQUIRED,
    ConstraintType.LOCATION_REQUIRED,
    ConstraintType.LOCATION_RECOMMENDED,
    ConstraintType.FIELD_OPTIONAL,
)


@dataclass(frozen=True)
class Candidate:
    """A binding whose fields are not selected yet; `schema` is None where its table is still to be made."""

    collection: Collection
    field_config: Mapping[str, Json]
    delta_updates: bool
    schema: Schema | None = None
    group_by: tuple[str, ...] = ()

    @cached_property
    def column_types(self) -> dict[str, IcebergType]:
        """The types of the columns that fields have already."""
        if self.schema is None:
            return {}
        existing = matching_columns(self.schema, (projection.field for projection in self.collection.projections))
        return {field: column.field_type for field, column in existing.items()}

    @cached_property
    def document(self) -> str | None:
        """The field that standard updates keep the root document in: the one that has a column, else the first."""
        fields = [p.field for p in self.collection.projections if p.ptr == "" and len(p.field) <= MAX_NAME]
        return min(fields, key=lambda field: field not in self.column_types, default=None)

    def is_key(self, projection: Projection) -> bool:
        return is_key(projection, self.collection, self.group_by)

    def is_required(self, projection: Projection) -> bool:
        return self.is_key(projection) or (projection.ptr == "" and not self.delta_updates)

    def needed_type(self, projection: Projection) -> PrimitiveType | None:
        return column_type(projection, self.field_config.get(projection.field), self.is_key(projection))


_Rule: TypeAlias = tuple[Callable[[Candidate, Projection], bool], ConstraintType, str]

# For a field without a column the first rule that holds.
NEW_COLUMN_RULES: Final[tuple[_Rule, ...]] = (
    (
        lambda _, projection: len(projection.field) > MAX_NAME,
        ConstraintType.FIELD_FORBIDDEN,
        f"The field's name is longer than {MAX_NAME} characters: give the location a shorter one with a projection.",
    ),
    (
        lambda candidate, projection: candidate.is_key(projection),
        ConstraintType.LOCATION_REQUIRED,
        "The location is part of the key: it must be materialized.",
    ),
    (
        lambda candidate, projection: projection.ptr == "" and candidate.delta_updates,
        ConstraintType.LOCATION_RECOMMENDED,
        "The root document holds everything, fields without a column of their own included.",
    ),
    (
        lambda candidate, projection: projection.ptr == "" and projection.field == candidate.document,
        ConstraintType.LOCATION_REQUIRED,
        "Standard updates reduce into the root document: it must be materialized.",
    ),
    (
        lambda _, projection: projection.ptr == "",
        ConstraintType.FIELD_FORBIDDEN,
        "Standard updates keep the root document once, and another field of this binding holds it.",
    ),
    (
        lambda _, projection: not types_besides_null(projection.inference),
        ConstraintType.FIELD_FORBIDDEN,
        "The collection's schema allows no value but null here: there is no type for a column.",
    ),
    (
        lambda _, projection: projection.field == "_meta/op",
        ConstraintType.LOCATION_RECOMMENDED,
        "Says whether a row was created, updated or deleted at its source.",
    ),
    (
        lambda _, projection: projection.field.startswith("_meta/"),
        ConstraintType.FIELD_OPTIONAL,
        "Metadata of the capture: seldom needed in a table.",
    ),
    (
        lambda _, projection: is_numeric_string(projection.inference),
        ConstraintType.LOCATION_RECOMMENDED,
        "Numbers, some or all of them written as strings, fit a numeric column.",
    ),
    (
        lambda _, projection: types_besides_null(projection.inference) == {"object"},
        ConstraintType.FIELD_OPTIONAL,
        "An object is kept as JSON text. Its own fields usually serve better.",
    ),
    (
        lambda _, projection: types_besides_null(projection.inference) == {"array"},
        ConstraintType.LOCATION_RECOMMENDED,
        "An array is kept as JSON text.",
    ),
    (
        lambda _, projection: len(types_besides_null(projection.inference)) > 1,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of several types are kept as text: strings as they are, all others as JSON.",
    ),
    (
        lambda *_: True,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of one scalar type fit a column.",
    ),
)


def constraints(candidate: Candidate) -> tuple[ProjectionConstraint, ...]:
    """Every field's constraints, in the order of the projections; a field may have several."""
    return tuple(
        ProjectionConstraint(projection.field, constraint)
        for projection in candidate.collection.projections
        for constraint in _constraints_of(candidate, projection)
    )


def most_severe(all_constraints: Iterable[ProjectionConstraint]) -> dict[str, Constraint]:
    """One constraint for each field."""
    result: dict[str, Constraint] = {}
    for each in all_constraints:
        result[each.field] = min(
            result.get(each.field, each.constraint),
            each.constraint,
            key=lambda constraint: SEVERITY.index(constraint.type),
        )
    return result


def problems(candidate: Candidate) -> list[str]:
    """What no selection of fields could mend, a sentence each."""
    projections = candidate.collection.projections
    nullable_keys = [
        f"field {projection.field!r} at {projection.ptr} is part of the key and may be null or missing, "
        "without a default. Require it in the collection's schema, give it a `default` there, or choose another key."
        for projection in projections
        if projection.ptr in candidate.collection.key
        and projection.inference.default is None
        and not is_required(projection)
    ]
    required = dict.fromkeys(projection.ptr for projection in projections if candidate.is_required(projection))
    nameless = [
        f"location {ptr or '(the root document)'} must be materialized, and every field of it has a name longer than "
        f"{MAX_NAME} characters. Give it a shorter name with a projection in the collection."
        for ptr in required
        if all(len(projection.field) > MAX_NAME for projection in projections if projection.ptr == ptr)
    ]
    return nullable_keys + nameless


def _constraints_of(candidate: Candidate, projection: Projection) -> list[Constraint]:
    new = _new_column(candidate, projection)
    column = candidate.column_types.get(projection.field)
    if column is None or new.type is ConstraintType.FIELD_FORBIDDEN:
        return [new]
    needed, is_required = candidate.needed_type(projection), candidate.is_required(projection)
    result = []
    if is_required:
        result.append(
            Constraint(
                ConstraintType.FIELD_REQUIRED,
                "The table cannot do without this field, and has a column for it: it must stay selected.",
            )
        )
    if not is_compatible(column, needed):
        reason = incompatible(projection.field, column, needed, is_required)
        result.append(Constraint(ConstraintType.INCOMPATIBLE, reason))
    return result or [Constraint(ConstraintType.FIELD_OPTIONAL, f"The field has a column of type {column}.")]


def _new_column(candidate: Candidate, projection: Projection) -> Constraint:
    return next(
        Constraint(constraint_type, reason)
        for applies, constraint_type, reason in NEW_COLUMN_RULES
        if applies(candidate, projection)
    )
