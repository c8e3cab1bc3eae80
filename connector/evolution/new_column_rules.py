"""The constraint of a field that has no column yet: a table of rules."""

from collections.abc import Callable
from typing import Final, TypeAlias

from pyiceberg.types import LongType

from connector.evolution.candidate import CandidateField
from connector.evolution.field_config import DECIMAL_SETTING, MAX_PRECISION, explain_reserved, fold_case
from connector.evolution.type_mapping import is_numeric_string, may_exceed_long
from protocol.flow import Constraint, ConstraintType

_Reason: TypeAlias = str | Callable[[CandidateField], str]
_Rule: TypeAlias = tuple[Callable[[CandidateField], bool], ConstraintType, _Reason]


def _has_lost_its_column(field: CandidateField) -> str:
    return (
        f"Field {field.claimant.projection.field!r} has this column, and a table cannot have two columns "
        "whose names differ in upper and lower case only. To select this field, give one of the two another column "
        'with {"column": "…"} in its field config.'
    )


def _has_no_name(field: CandidateField) -> str:
    if field.is_reserved:
        return explain_reserved(field.name)
    return f'A column\'s name has {field.candidate.name_rule}: give it one with {{"column": "…"}} in the field config.'


def _is_named(field: CandidateField) -> bool:
    return bool(field.json_types and field.has_claim and field.naming_settings)


def explain_naming(field: CandidateField) -> str:
    """Say which settings name the field; "" if none does."""
    match field.naming_settings:
        case []:
            return ""
        case [setting]:
            return f"The binding's {setting} names this field: it must be materialized."
        case settings:
            return f"The binding's {' and '.join(settings)} name this field: it must be materialized."


# The first rule that applies decides.
RULES: Final[tuple[_Rule, ...]] = (
    (
        lambda field: not field.has_name,
        ConstraintType.FIELD_FORBIDDEN,
        _has_no_name,
    ),
    (_is_named, ConstraintType.FIELD_REQUIRED, explain_naming),
    (
        lambda field: field.has_key_location,
        ConstraintType.LOCATION_REQUIRED,
        "The location is part of the key: it must be materialized.",
    ),
    (
        lambda field: fold_case(field.name) in field.candidate.partition_fields,
        ConstraintType.FIELD_FORBIDDEN,
        "A partition field of the table has this name. To select this field, give it another column with "
        '{"column": "…"} in its field config.',
    ),
    (
        lambda field: not field.json_types,
        ConstraintType.FIELD_FORBIDDEN,
        "The collection's schema allows only null here, so there is no type for a column.",
    ),
    (
        lambda field: not field.has_claim,
        ConstraintType.FIELD_FORBIDDEN,
        _has_lost_its_column,
    ),
    (
        lambda field: field.is_document and field.candidate.delta_updates,
        ConstraintType.LOCATION_RECOMMENDED,
        "The root document holds all fields, also those without their own column.",
    ),
    (
        lambda field: field.is_document and field.projection.field == field.candidate.document,
        ConstraintType.LOCATION_REQUIRED,
        "Standard updates reduce into the root document: it must be materialized.",
    ),
    (
        lambda field: field.is_document,
        ConstraintType.FIELD_FORBIDDEN,
        "Standard updates store the root document once, and another field of this binding holds it.",
    ),
    (
        lambda field: field.projection.field == "_meta/op",
        ConstraintType.LOCATION_RECOMMENDED,
        "Says whether a row was created, updated or deleted at its source.",
    ),
    (
        lambda field: field.projection.field.startswith("_meta/"),
        ConstraintType.FIELD_OPTIONAL,
        "Metadata of the capture, which a table seldom needs.",
    ),
    (
        lambda field: field.config.decimal is not None,
        ConstraintType.LOCATION_RECOMMENDED,
        "Its field config asks for a column of decimals, which keeps every digit.",
    ),
    (
        lambda field: field.type == LongType() and may_exceed_long(field.projection.inference),
        ConstraintType.LOCATION_RECOMMENDED,
        "The values are integers, and some may have more digits than a long. To keep these, set "
        f'{{"{DECIMAL_SETTING}": {{"precision": {MAX_PRECISION}, "scale": 0}}}} in the field config.',
    ),
    (
        lambda field: is_numeric_string(field.projection.inference),
        ConstraintType.LOCATION_RECOMMENDED,
        "The values are numbers, written as numbers or as strings: they fit a numeric column.",
    ),
    (
        lambda field: field.json_types == {"object"},
        ConstraintType.FIELD_OPTIONAL,
        "An object becomes JSON text. Usually, columns for its fields are more useful.",
    ),
    (
        lambda field: field.json_types == {"array"},
        ConstraintType.LOCATION_RECOMMENDED,
        "An array becomes JSON text.",
    ),
    (
        lambda field: len(field.json_types) > 1,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of several types become text: strings unchanged, all others as JSON.",
    ),
    (
        lambda _: True,
        ConstraintType.LOCATION_RECOMMENDED,
        "Values of one scalar type fit a column.",
    ),
)


def constrain_new_column(field: CandidateField) -> Constraint:
    """The constraint of the first rule that applies to the field."""
    return next(
        Constraint(constraint_type, reason if isinstance(reason, str) else reason(field))
        for applies, constraint_type, reason in RULES
        if applies(field)
    )
