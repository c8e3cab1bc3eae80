"""What validate answers about a binding: a constraint for each field, or what is wrong with the binding."""

from collections.abc import Iterable
from typing import Final

import msgspec
from pyiceberg.types import StringType

from connector.evolution.arrangement_changes import plan_arrangement
from connector.evolution.arrangement_terms import Source, resolve_terms
from connector.evolution.candidate import Candidate, CandidateField
from connector.evolution.column_fits import Fit
from connector.evolution.field_config import RESERVED_NAMES, fold_case, match_columns
from connector.evolution.new_column_rules import constrain_new_column, explain_naming
from connector.evolution.table_change import (
    AddColumn,
    ColumnChange,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
)
from connector.evolution.type_changes import loses_texts, name_lost_text
from connector.evolution.type_mapping import find_decimal_problem, is_required
from protocol.flow import Constraint, ConstraintType, ProjectionConstraint

# The older form of a response has one constraint for each field: the one that comes first here.
SEVERITY: Final = (
    ConstraintType.INCOMPATIBLE,
    ConstraintType.FIELD_FORBIDDEN,
    ConstraintType.FIELD_REQUIRED,
    ConstraintType.LOCATION_REQUIRED,
    ConstraintType.LOCATION_RECOMMENDED,
    ConstraintType.FIELD_OPTIONAL,
)


def list_constraints(candidate: Candidate) -> tuple[ProjectionConstraint, ...]:
    """List every field's constraints, in the order of the projections. A field may have several."""
    return tuple(
        ProjectionConstraint(field.projection.field, _name_folded_field(constraint, field))
        for field in candidate.fields
        for constraint in _constrain_field(field)
    )


def list_new_names(candidate: Candidate) -> list[str]:
    """List the names of the columns that would be new if every field that can be selected were."""
    return [
        field.name
        for field in candidate.fields
        if (field.fit is None or field.fit.column is None)
        and all(each.type is not ConstraintType.FIELD_FORBIDDEN for each in _constrain_field(field))
    ]


def pick_most_severe(all_constraints: Iterable[ProjectionConstraint]) -> dict[str, Constraint]:
    """Pick one constraint for each field."""
    result: dict[str, Constraint] = {}
    for each in all_constraints:
        result[each.field] = min(
            result.get(each.field, each.constraint),
            each.constraint,
            key=lambda constraint: SEVERITY.index(constraint.type),
        )
    return result


def _name_folded_field(constraint: Constraint, field: CandidateField) -> Constraint:
    """Tell the runtime the name of the field's column, so that it does not select two fields with one name."""
    is_same = field.name == field.projection.field
    return constraint if is_same else msgspec.structs.replace(constraint, folded_field=field.name)


def _constrain_field(field: CandidateField) -> list[Constraint]:
    new, fit = constrain_new_column(field), field.fit
    if fit is None or new.type is ConstraintType.FIELD_FORBIDDEN:
        return [new]
    if fit.column is None:
        return [Constraint(ConstraintType.FIELD_FORBIDDEN, fit.refusal)] if fit.refusal else [new]
    result = []
    if kept := _explain_required(field, fit):
        result.append(Constraint(ConstraintType.FIELD_REQUIRED, kept))
    if fit.refusal:
        assert field.candidate.evolution is not None
        helps = field.candidate.evolution.rules.can_be_replaced
        # By default, Flow raises the backfill counter for an incompatible field, and publishes without asking again.
        refused = ConstraintType.INCOMPATIBLE if helps else ConstraintType.FIELD_FORBIDDEN
        result.append(Constraint(refused, fit.refusal))
    return result or [Constraint(ConstraintType.FIELD_OPTIONAL, _describe_fit(field, fit))]


def _explain_required(field: CandidateField, fit: Fit) -> str:
    """Say why a field that has a column must stay selected; "" if it need not."""
    assert fit.column is not None
    assert field.candidate.evolution is not None
    kept = ""
    if field.is_indispensable:
        kept = "The table needs this field, and has a column for it: it must stay selected."
    elif naming := explain_naming(field):
        kept = naming
    elif fit.column.required and (refusal := field.candidate.evolution.rules.explain_required(fit.column)):
        kept = f"The field must stay selected. {refusal}"
    return kept and " ".join((kept, *(() if fit.refusal else _describe_effects(field, fit))))


def _describe_fit(field: CandidateField, fit: Fit) -> str:
    assert fit.column is not None
    return " ".join((f"The field has a column of type {fit.column.field_type}.", *_describe_effects(field, fit)))


def _describe_effects(field: CandidateField, fit: Fit) -> list[str]:
    return [_describe_effect(change, field) for change in fit.changes]


def _describe_effect(change: ColumnChange, field: CandidateField) -> str:
    match change:
        case RenameColumn(name, new_name) if other := _find_holder(field, new_name):
            return (
                f"Its column {name!r} is renamed to {new_name!r} if field {other!r} stays selected, which has this "
                f"column and gets another one. Otherwise, the field gets the column {new_name!r}, with the values of "
                f"{other!r}."
            )
        case RenameColumn(name, new_name):
            return f"Its column {name!r} is renamed to {new_name!r}."
        case WidenColumn(_, _, new_type):
            return f"It is widened to {new_type} in place."
        case ConvertColumn():
            return f"Its values are rewritten as {change.column.type}.{_describe_losses(change)}"
        case SetAsideColumn(_, old_type, kept_as, column):
            return (
                f"The schema now needs {column.type}, to which values of type {old_type} cannot be converted: older "
                f"rows keep their values in {kept_as!r}, and newer rows get a new column."
            )
        case MakeOptional():
            return "It becomes optional: its NOT NULL is dropped."
        case AddColumn():
            raise AssertionError("a field that has a column needs no new one")


def _find_holder(field: CandidateField, name: str) -> str:
    """Find the other field that has the column of this name; "" if there is none."""
    assert field.candidate.evolution is not None
    columns = match_columns(field.candidate.evolution.table.schema, [name])
    holders = (other for other, former in field.candidate.former_names.items() if fold_case(former) == fold_case(name))
    return next(holders, "") if columns else ""


def _describe_losses(change: ConvertColumn) -> str:
    column = change.column
    if column.had_strings and loses_texts(change.old_type, column.type):
        text, value = name_lost_text(change.old_type)
        return f' The texts of older documents are lost: "{text}" is {value} in the column, and becomes "{value}".'
    if column.type == StringType():
        return ""
    if column.is_indispensable:
        return " If a value cannot be converted, only a backfill helps."
    return " If a value cannot be converted, the column is renamed, and a new one is added."


def find_problems(candidate: Candidate) -> list[str]:
    """Find what is wrong with a binding, for any selection of its fields. Each problem is a sentence."""
    fields, projections = candidate.fields, candidate.collection.projections
    without_projection = [
        f"location {ptr} is part of the collection's key, but the collection has no projection of it. Define the "
        "location in the collection's schema, or correct the key."
        for ptr in candidate.collection.key
        if all(projection.ptr != ptr for projection in projections)
    ]
    nullable_keys = [
        f"field {projection.field!r} at {projection.ptr} is part of the key and may be null or missing, "
        "without a default. Require it in the collection's schema, give it a `default` there, or choose another key, "
        "for this binding by `groupBy`."
        for projection in projections
        if not candidate.group_by  # in which Flow allows nulls
        and projection.ptr in candidate.collection.key
        and projection.inference.default is None
        and not is_required(projection)
    ]
    required = dict.fromkeys(field.projection.ptr for field in fields if field.is_indispensable)
    reserved = ", ".join(sorted(RESERVED_NAMES))
    nameless = [
        f"location {ptr or '(the root document)'} must be materialized, but none of its fields has a valid column "
        f"name: {candidate.name_rule}, and none of the names that Iceberg reserves ({reserved}). "
        'Give one of them another column with {"column": "…"} in its field config.'
        for ptr in required
        if not any(field.has_name for field in fields if field.projection.ptr == ptr)
    ]
    mistakes = [
        f"field {field.projection.field!r} has a mistake in its field config: {field.config.mistake}"
        for field in fields
        if field.config.mistake
    ]
    settings = [find_decimal_problem(field.projection, field.config, field.has_key_location) for field in fields]
    return (
        without_projection
        + nullable_keys
        + nameless
        + mistakes
        + [*filter(None, settings)]
        + _find_clashes(candidate, required)
        + _find_fit_problems(candidate, required)
        + _find_arrangement_problems(candidate)
    )


def _find_clashes(candidate: Candidate, required: Iterable[str]) -> list[str]:
    """Find pairs of locations that must both be materialized, but can only have the same column."""
    by_name: dict[str, str] = {}
    clashes = []
    for ptr in required:
        fields = [each for each in candidate.fields if each.projection.ptr == ptr and each.has_name]
        names = {fold_case(each.name) for each in fields}
        if len(names) != 1:
            continue
        first = fields[0].projection.field
        if (other := by_name.setdefault(names.pop(), first)) != first:
            clashes.append(
                f"fields {other!r} and {first!r} must both be materialized, and their columns' names differ "
                'in upper and lower case only. Give one of them another with {"column": "…"} in its field config.'
            )
    return clashes


def _find_fit_problems(candidate: Candidate, required: Iterable[str]) -> list[str]:
    if candidate.evolution is None:
        return []
    without_column = [
        f"location {ptr or '(the root document)'} must be materialized: {refusals[0]}"
        for ptr in required
        if (fits := [each.fit for each in candidate.fields if each.projection.ptr == ptr and each.fit])
        and all(fit.column is None for fit in fits)
        and (refusals := [fit.refusal for fit in fits if fit.refusal])
    ]
    selectable = [
        (each, each.fit)
        for each in candidate.fields
        if each.fit and constrain_new_column(each).type is not ConstraintType.FIELD_FORBIDDEN
    ]
    fits = [fit for _, fit in selectable]
    fieldless = [fit.refusal for fit in candidate.evolution.fit_unwritten_columns(fits) if fit.refusal]
    if candidate.evolution.rules.can_be_replaced:
        return without_column + fieldless
    # These fields can neither be selected nor be left out, and no backfill helps.
    stuck = [
        f"{fit.refusal} {kept}"
        for field, fit in selectable
        if fit.column and fit.refusal and (kept := _explain_required(field, fit))
    ]
    return without_column + stuck + fieldless


def _find_arrangement_problems(candidate: Candidate) -> list[str]:
    """Find what is wrong with `partition_by` and `sort_by`."""
    evolution = candidate.evolution
    columns = {each.name for each in candidate.fields if each.is_indispensable or each.naming_settings}
    if evolution:
        columns |= {column.name for column in evolution.table.schema.fields}
    sources = [_find_source(each) for each in candidate.fields]
    resolved = resolve_terms(candidate.arrangement, sources, columns)
    if resolved.problems or not evolution:
        return [*resolved.problems]
    arranged = plan_arrangement(evolution.table.arrangement, resolved)
    return [*evolution.rules.find_arrangement_problems(arranged, resolved.column_ids)]


def _find_source(field: CandidateField) -> Source:
    """Describe the field for terms that name it."""
    new, fit, type_ = constrain_new_column(field), field.fit or Fit(None), field.type
    obstacle = new.reason if new.type is ConstraintType.FIELD_FORBIDDEN else fit.refusal if not fit.column else ""
    if type_ is None or obstacle or field.is_document:
        return Source(field.projection.field, field.name, is_document=field.is_document, obstacle=obstacle)
    return fit.find_source(field.make_column(type_))
