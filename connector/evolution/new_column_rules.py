"""The constraint of a field that has no column yet: a table of rules."""

from collections.abc import Callable
from typing import Final, TypeAlias

from connector.evolution.candidate import Candidate
from connector.evolution.field_config import explain_reserved, fold_case
from connector.evolution.type_mapping import is_numeric_string, list_types_besides_null
from protocol.flow import Constraint, ConstraintType, Projection

_Reason: TypeAlias = str | Callable[[Candidate, Projection], str]
_Rule: TypeAlias = tuple[Callable[[Candidate, Projection], bool], ConstraintType, _Reason]


def _has_lost_its_column(candidate: Candidate, projection: Projection) -> str:
    return (
        f"Field {candidate.find_claimant(projection).field!r} has this column, and a table cannot have two columns "
        "whose names differ in upper and lower case only. To select this field, give one of the two another column "
        'with {"column": "…"} in its field config.'
    )


def _has_no_name(candidate: Candidate, projection: Projection) -> str:
    if candidate.is_reserved(projection):
        return explain_reserved(candidate.name(projection))
    return f'A column\'s name has {candidate.name_rule}: give it one with {{"column": "…"}} in the field config.'


def _is_named(candidate: Candidate, projection: Projection) -> bool:
    can_have_column = (
        list_types_besides_null(projection.inference) and candidate.find_claimant(projection) == projection
    )
    return bool(can_have_column) and projection.field in candidate.naming_settings


def explain_naming(candidate: Candidate, projection: Projection) -> str:
    """Say which settings name the field; "" if none does."""
    match candidate.naming_settings.get(projection.field):
        case None:
            return ""
        case [setting]:
            return f"The binding's {setting} names this field: it must be materialized."
        case settings:
            return f"The binding's {' and '.join(settings)} name this field: it must be materialized."


# The first rule that applies decides.
RULES: Final[tuple[_Rule, ...]] = (
    (
        lambda candidate, projection: not candidate.has_name(projection),
        ConstraintType.FIELD_FORBIDDEN,
        _has_no_name,
    ),
    (_is_named, ConstraintType.FIELD_REQUIRED, explain_naming),
    (
        lambda candidate, projection: candidate.is_key(projection),
        ConstraintType.LOCATION_REQUIRED,
        "The location is part of the key: it must be materialized.",
    ),
    (
        lambda candidate, projection: fold_case(candidate.name(projection)) in candidate.partition_fields,
        ConstraintType.FIELD_FORBIDDEN,
        "A partition field of the table has this name. To select this field, give it another column with "
        '{"column": "…"} in its field config.',
    ),
    (
        lambda _, projection: not list_types_besides_null(projection.inference),
        ConstraintType.FIELD_FORBIDDEN,
        "The collection's schema allows only null here, so there is no type for a column.",
    ),
    (
        lambda candidate, projection: candidate.find_claimant(projection) != projection,
        ConstraintType.FIELD_FORBIDDEN,
        _has_lost_its_column,
    ),
    (
        lambda candidate, projection: projection.ptr == "" and candidate.delta_updates,
        ConstraintType.LOCATION_RECOMMENDED,
        "The root document holds all fields, also those without their own column.",
    ),
    (
        lambda candidate, projection: projection.ptr == "" and projection.field == candidate.document,
        ConstraintType.LOCATION_REQUIRED,
        "Standard updates reduce into the root document: it must be materialized.",
    ),
    (
        lambda _, projection: projection.ptr == "",
        ConstraintType.FIELD_FORBIDDEN,
        "Standard updates store the root document once, and another field of this binding holds it.",
    ),
    (
        lambda _, projection: projection.field == "_meta/op",
        ConstraintType.LOCATION_RECOMMENDED,
        "Says whether a row was created, updated or deleted at its source.",
    ),
    (
        lambda _, projection: projection.field.startswith("_meta/"),
        ConstraintType.FIELD_OPTIONAL,
        "Metadata of the capture, which a table seldom needs.",
    ),
    (
        lambda candidate, projection: candidate.config(projection).decimal is not None,
        ConstraintType.LOCATION_RECOMMENDED,
        "Its field config asks for a column of decimals, which keeps every digit.",
    ),
    (
        lambda _, projection: is_numeric_string(projection.inference),
        ConstraintType.LOCATION_RECOMMENDED,
        "The values are numbers, written as numbers or as strings: they fit a numeric column.",
    ),
    (
        lambda _, projection: list_types_besides_null(projection.inference) == {"object"},
        ConstraintType.FIELD_OPTIONAL,
        "An object becomes JSON text. Usually, columns for its fields are more useful.",
    ),
    (
        lambda _, projection: list_types_besides_null(projection.inference) == {"array"},
        ConstraintType.LOCATION_RECOMMENDED,
        "An array becomes JSON text.",
    ),
    (
        lambda _, projection: len(list_types_besides_null(projection.inference)) > 1,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of several types become text: strings unchanged, all others as JSON.",
    ),
    (
        lambda *_: True,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of one scalar type fit a column.",
    ),
)


def constrain_new_column(candidate: Candidate, projection: Projection) -> Constraint:
    """The constraint of the first rule that applies to the field."""
    return next(
        Constraint(constraint_type, reason if isinstance(reason, str) else reason(candidate, projection))
        for applies, constraint_type, reason in RULES
        if applies(candidate, projection)
    )
