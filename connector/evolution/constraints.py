"""What may become of every field of a binding, given its collection and the columns of its table."""

from collections.abc import Iterable
from typing import Final

import msgspec
from pyiceberg.types import StringType

from connector.evolution.candidate import Candidate
from connector.evolution.columns import Fit
from connector.evolution.new_columns import new_column
from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
)
from protocol.flow import Constraint, ConstraintType, Projection, ProjectionConstraint

# The older form of a response has room for one constraint per field: the one that comes first here.
SEVERITY: Final = (
    ConstraintType.INCOMPATIBLE,
    ConstraintType.FIELD_FORBIDDEN,
    ConstraintType.FIELD_REQUIRED,
    ConstraintType.LOCATION_REQUIRED,
    ConstraintType.LOCATION_RECOMMENDED,
    ConstraintType.FIELD_OPTIONAL,
)


def constraints(candidate: Candidate) -> tuple[ProjectionConstraint, ...]:
    """Every field's constraints, in the order of the projections; a field may have several."""
    return tuple(
        ProjectionConstraint(
            projection.field, _name_folded_field(constraint, candidate.name(projection), projection.field)
        )
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


def _name_folded_field(constraint: Constraint, name: str, field: str) -> Constraint:
    """Tells the runtime under which name a field lands, so that it selects no two fields of one name."""
    return constraint if name == field else msgspec.structs.replace(constraint, folded_field=name)


def _constraints_of(candidate: Candidate, projection: Projection) -> list[Constraint]:
    new, fit = new_column(candidate, projection), candidate.fits.get(projection.field)
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
                f"The schema now needs {column.type}, for which values of type {old_type} have no equivalent: older "
                f"rows keep theirs in {kept_as!r}, and newer ones get a new column."
            )
        case MakeOptional():
            return "Its NOT NULL is dropped."
        case AddColumn():
            raise AssertionError("a field that has a column needs no new one")
