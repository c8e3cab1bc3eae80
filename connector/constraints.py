"""What may become of every field of a binding: pure, from its collection and the columns that its table has."""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec
from pyiceberg.types import StringType

from connector.candidate import Candidate
from connector.column_evolution import Fit
from connector.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
)
from connector.type_mapping import MAX_NAME, is_numeric_string, is_required, types_besides_null
from protocol.flow import Constraint, ConstraintType, Projection, ProjectionConstraint

# The older form of a response has room for one constraint per field: the first of these.
SEVERITY: Final = (
    ConstraintType.INCOMPATIBLE,
    ConstraintType.FIELD_FORBIDDEN,
    ConstraintType.FIELD_REQUIRED,
    ConstraintType.LOCATION_REQUIRED,
    ConstraintType.LOCATION_RECOMMENDED,
    ConstraintType.FIELD_OPTIONAL,
)


_Rule: TypeAlias = tuple[Callable[[Candidate, Projection], bool], ConstraintType, str]

# For a field without a column the first rule that holds.
NEW_COLUMN_RULES: Final[tuple[_Rule, ...]] = (
    (
        lambda candidate, projection: not candidate.has_name(projection),
        ConstraintType.FIELD_FORBIDDEN,
        f'A column\'s name has 1 to {MAX_NAME} characters: give it one with {{"column": "…"}} in the field config.',
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
        lambda candidate, projection: candidate.is_second(projection),
        ConstraintType.FIELD_OPTIONAL,
        "Another field's name differs in upper and lower case only, and a table cannot have both: select one of them, or "
        'give one of them another column with {"column": "…"} in its field config.',
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
        ProjectionConstraint(projection.field, _folded(constraint, candidate.name(projection), projection.field))
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
        f"location {ptr or '(the root document)'} must be materialized, and none of its fields has a column's name, of "
        f'1 to {MAX_NAME} characters. Give one of them another with {{"column": "…"}} in its field config.'
        for ptr in required
        if not any(candidate.has_name(projection) for projection in projections if projection.ptr == ptr)
    ]
    return nullable_keys + nameless + _clashes(candidate, required) + _problems_of_table(candidate, required)


def _clashes(candidate: Candidate, required: Iterable[str]) -> list[str]:
    """Locations that must be materialized and can only have the same column."""
    by_name: dict[str, str] = {}
    clashes = []
    for ptr in required:
        fields = [p for p in candidate.collection.projections if p.ptr == ptr and candidate.has_name(p)]
        names = {candidate.name(field).lower() for field in fields}
        if len(names) == 1 and (other := by_name.setdefault(names.pop(), fields[0].field)) != fields[0].field:
            clashes.append(
                f"fields {other!r} and {fields[0].field!r} must both be materialized, and their columns' names differ in "
                'upper and lower case only. Give one of them another with {"column": "…"} in its field config.'
            )
    return clashes


def _problems_of_table(candidate: Candidate, required: Iterable[str]) -> list[str]:
    if candidate.evolution is None:
        return []
    fits = candidate.fits
    without_column = [
        f"location {ptr or '(the root document)'} must be materialized: {refusals[0]}"
        for ptr in required
        if (
            of_location := [fits[p.field] for p in candidate.collection.projections if p.ptr == ptr and p.field in fits]
        )
        and all(fit.column is None for fit in of_location)
        and (refusals := [fit.refusal for fit in of_location if fit.refusal])
    ]
    selectable = [
        fits[projection.field]
        for projection in candidate.collection.projections
        if projection.field in fits and _new_column(candidate, projection).type is not ConstraintType.FIELD_FORBIDDEN
    ]
    fieldless = [fit.refusal for fit in candidate.evolution.unwritten(selectable) if fit.refusal]
    return without_column + fieldless


def _folded(constraint: Constraint, name: str, field: str) -> Constraint:
    """The runtime is told under which name a field lands: it selects no two fields of one name."""
    return constraint if name == field else msgspec.structs.replace(constraint, folded_field=name)


def _constraints_of(candidate: Candidate, projection: Projection) -> list[Constraint]:
    new, fit = _new_column(candidate, projection), candidate.fits.get(projection.field)
    if fit is None or new.type is ConstraintType.FIELD_FORBIDDEN:
        return [new]
    if fit.column is None:
        return [Constraint(ConstraintType.FIELD_FORBIDDEN, fit.refusal)] if fit.refusal else [new]
    result = []
    if kept := _why_kept(candidate, projection, fit):
        result.append(Constraint(ConstraintType.FIELD_REQUIRED, kept))
    if fit.refusal:
        result.append(Constraint(ConstraintType.INCOMPATIBLE, fit.refusal))
    return result or [Constraint(ConstraintType.FIELD_OPTIONAL, _become_of(fit))]


def _why_kept(candidate: Candidate, projection: Projection, fit: Fit) -> str:
    """Why a field that has a column has to stay selected; "" if it need not."""
    assert fit.column is not None
    assert candidate.evolution is not None
    kept = ""
    if candidate.is_required(projection):
        kept = "The table cannot do without this field, and has a column for it: it must stay selected."
    elif fit.column.required and (refusal := candidate.evolution.against_deselecting(fit.column)):
        kept = f"The field must stay selected. {refusal}"
    return kept and " ".join((kept, *map(_effect, fit.changes if not fit.refusal else ())))


def _become_of(fit: Fit) -> str:
    assert fit.column is not None
    return " ".join((f"The field has a column of type {fit.column.field_type}.", *map(_effect, fit.changes)))


def _effect(change: Alteration) -> str:
    match change:
        case RenameColumn(_, name, new_name):
            return f"Its column {name!r} gets the name {new_name!r}."
        case WidenColumn(_, _, _, new_type):
            return f"It is widened to {new_type} in place."
        case ConvertColumn(_, _, _, column):
            converted = f"Its values are rewritten as {column.type}."
            if column.type == StringType():
                return converted
            if column.is_indispensable:
                return f"{converted} If one of them has no equivalent, only a backfill helps."
            return (
                f"{converted} If one of them has no equivalent, the column goes on under another name beside a new one."
            )
        case SetAsideColumn(_, _, old_type, kept_as, column):
            return (
                f"The schema now needs {column.type}, for which values of type {old_type} have no equivalent: older rows "
                f"keep theirs in {kept_as!r}, and newer ones get a new column."
            )
        case MakeOptional():
            return "Its NOT NULL is dropped."
        case AddColumn():
            return "It is added to the table."


def _new_column(candidate: Candidate, projection: Projection) -> Constraint:
    return next(
        Constraint(constraint_type, reason)
        for applies, constraint_type, reason in NEW_COLUMN_RULES
        if applies(candidate, projection)
    )
