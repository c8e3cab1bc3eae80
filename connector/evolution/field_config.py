"""A field's config, parsed once: the name and the type that the user wants for the field's column."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from connector.config.values import NameCase
from protocol.flow import FieldSelection, Json

MAX_NAME: Final = 255  # characters of a column's name
# Of Iceberg's own columns. Spark reads no table that has one of these names, in whichever format version.
RESERVED_NAMES: Final = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0a-\x1f]")  # without tabs

COLUMN_SETTING: Final = "column"
DECIMAL_SETTING: Final = "decimal"
STRING_SETTINGS: Final = ("ignoreStringFormat", "castToString")
MAX_PRECISION: Final = 38  # of Iceberg's decimals
_SETTINGS: Final = {name.lower(): name for name in (COLUMN_SETTING, DECIMAL_SETTING, *STRING_SETTINGS)}
_NEAR: Final = 0.8  # how much two names must have in common, from 0 to 1


@dataclass(frozen=True)
class FieldConfig:
    """The settings of one field. A setting of another connector changes nothing."""

    column: str | None = None  # the name of the column; "" if the setting is not a text; None: the field's own name
    is_string: bool = False
    decimal: DecimalType | None = None
    has_malformed_decimal: bool = False
    mistake: str = ""  # what is wrong with a setting that would change nothing as it is written

    def column_name(self, field: str, case: NameCase = NameCase.PRESERVE) -> str:
        """The name of the field's column; "" if the setting is not a name. The case does not change a name that the
        user has set."""
        return change_case(field, case) if self.column is None else self.column


NO_CONFIG: Final = FieldConfig()


def parse_field_config(config: Json) -> FieldConfig:
    """Parse the config of one field, as the user wrote it. `find_decimal_problem` says what is wrong with it."""
    if not isinstance(config, dict):
        return NO_CONFIG
    column, decimal = config.get(COLUMN_SETTING), config.get(DECIMAL_SETTING)
    type_ = _parse_decimal(decimal)
    return FieldConfig(
        column=column if column is None or isinstance(column, str) else "",
        is_string=any(config.get(setting) is True for setting in STRING_SETTINGS),
        decimal=type_,
        has_malformed_decimal=decimal is not None and type_ is None,
        mistake=" ".join(_find_mistakes(config)),
    )


def parse_field_configs(configs: Mapping[str, Json]) -> dict[str, FieldConfig]:
    """Parse the configs of a binding's fields. A field without a config has no entry."""
    return {field: parse_field_config(config) for field, config in configs.items()}


def list_selected_fields(selection: FieldSelection) -> tuple[str, ...]:
    """Every selected field, in the order of its columns."""
    return selection.keys + selection.values + ((selection.document,) if selection.document else ())


def name_columns(selection: FieldSelection) -> dict[str, str]:
    """The names of the columns, by selected field."""
    configs = parse_field_configs(selection.field_config)
    return {field: configs.get(field, NO_CONFIG).column_name(field) for field in list_selected_fields(selection)}


def _find_mistakes(config: Json) -> Iterator[str]:
    """Say which setting is probably misspelled, and which has not one of its values."""
    for name, value in config.items():
        plain = name.lower().replace("_", "").replace("-", "")
        if name not in _SETTINGS.values() and (near := get_close_matches(plain, _SETTINGS, 1, _NEAR)):
            yield f"{name!r} is not a setting of a field. Did you mean {_SETTINGS[near[0]]!r}?"
        if name in STRING_SETTINGS and not isinstance(value, bool | None):
            yield f"{name!r} must be true or false."


def _parse_decimal(setting: Json) -> DecimalType | None:
    """The type that {"precision": …, "scale": …} asks for; None if it is not a valid one."""
    match setting:
        case {"precision": int(precision), "scale": int(scale), **others} if not others:
            are_numbers = type(precision) is type(scale) is int  # a boolean is an int, too
            if are_numbers and 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision:
                return DecimalType(precision, scale)
    return None


def is_reserved(name: str, schema: Schema | None) -> bool:
    """Whether Iceberg reserves the name of a column. A column that the table has already is not refused."""
    return name in RESERVED_NAMES and (schema is None or name not in schema.column_names)


def explain_reserved(name: str) -> str:
    """Say why a column may not have a name that Iceberg reserves, and what to do."""
    return (
        f"Iceberg reserves the name {name!r}, and Spark reads no table with such a column: "
        'give the field another column with {"column": "…"} in its field config.'
    )


def fold_case(name: str) -> str:
    """Return the name in the form in which Java compares names that may differ in case. If two columns of a table have
    the same form, Spark cannot read the table.

    Java compares the lower case of each character's upper case. So the Turkish i without a dot is equal to `i`.
    """
    return "".join(map(_fold, name))


def _fold(character: str) -> str:
    upper = character.upper()
    # Java maps a character to one character: ß stays, and İ becomes i.
    return (upper if len(upper) == 1 else character).lower()[:1]


def change_case(name: str, case: NameCase) -> str:
    """Return the name in this case. `fold_case` gives the same for both names: so fields whose names differ have the
    same column afterwards only if one table cannot have both names anyway.

    A character whose other case has several, as ß has, stays.
    """
    match case:
        case NameCase.LOWERCASE:
            return "".join(character.lower()[0] for character in name)
        case NameCase.UPPERCASE:
            return "".join(upper if len(upper := character.upper()) == 1 else character for character in name)
        case NameCase.PRESERVE:
            return name


def name_nested(schema: Schema) -> frozenset[str]:
    """The names, without regard to case, of what is within columns: `a.b`, `list.element`. No column can have one."""
    columns = {column.field_id for column in schema.fields}
    names = (schema.find_column_name(number) or "" for number in schema.field_ids if number not in columns)
    return frozenset(map(fold_case, names))


def match_columns(schema: Schema, fields: Iterable[str]) -> dict[str, NestedField]:
    """Find the columns with these names. If none has exactly the name, one that differs in case only counts."""
    columns = {fold_case(column.name): column for column in schema.fields}
    columns |= {column.name: column for column in schema.fields}
    matches = {field: columns.get(field, columns.get(fold_case(field))) for field in fields}
    return {field: column for field, column in matches.items() if column is not None}
