"""What is wrong with a binding, whichever of its fields are selected: a sentence each."""

from collections.abc import Iterable

from connector.evolution.candidate import Candidate
from connector.evolution.new_columns import new_column
from connector.evolution.type_mapping import find_decimal_problem, is_required
from protocol.flow import ConstraintType


def problems(candidate: Candidate) -> list[str]:
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
        f'{candidate.name_demand}. Give one of them another with {{"column": "…"}} in its field config.'
        for ptr in required
        if not any(candidate.has_name(projection) for projection in projections if projection.ptr == ptr)
    ]
    settings = [
        find_decimal_problem(projection, candidate.config(projection), candidate.is_key(projection))
        for projection in projections
    ]
    return (
        nullable_keys
        + nameless
        + [*filter(None, settings)]
        + _clashes(candidate, required)
        + _problems_of_table(candidate, required)
    )


def _clashes(candidate: Candidate, required: Iterable[str]) -> list[str]:
    """Pairs of locations that must both be materialized, but can only have the same column."""
    by_name: dict[str, str] = {}
    clashes = []
    for ptr in required:
        fields = [p for p in candidate.collection.projections if p.ptr == ptr and candidate.has_name(p)]
        names = {candidate.name(field).lower() for field in fields}
        if len(names) == 1 and (other := by_name.setdefault(names.pop(), fields[0].field)) != fields[0].field:
            clashes.append(
                f"fields {other!r} and {fields[0].field!r} must both be materialized, and their columns' names differ "
                'in upper and lower case only. Give one of them another with {"column": "…"} in its field config.'
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
        if projection.field in fits and new_column(candidate, projection).type is not ConstraintType.FIELD_FORBIDDEN
    ]
    fieldless = [fit.refusal for fit in candidate.evolution.unwritten(selectable) if fit.refusal]
    return without_column + fieldless
