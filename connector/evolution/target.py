"""The table that a binding needs, and its columns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from connector.config.values import FORMAT_VERSIONS
from connector.evolution.binding_settings import DEFAULT_SETTINGS, BindingSettings, IdentifierFields
from connector.evolution.property_changes import REFUSED_IDENTIFIER_FIELDS
from connector.model.table_identifier import Owner, TableIdentifier


@dataclass(frozen=True)
class NewColumn:
    """A column that a binding needs."""

    field: str
    name: str
    type: PrimitiveType
    required: bool
    doc: str
    is_indispensable: bool  # its field is always selected, and all rows have their values in it
    former: str = ""  # the column's name when the binding was last applied; "" if the field was not selected then
    is_key: bool = False  # its field is selected as a part of the key
    is_document: bool = False  # its field is the root document
    # Whether the last published collection allowed strings for the column, which has another type. Only validate knows.
    had_strings: bool = False
    # Whether a column of text that Estuary's S3 Iceberg connector has made for it stays.
    may_stay_text: bool = False
    # With standard updates, the column that had this part of the key, or the document, when the binding was last
    # applied; "" if none. Another field of the same location may have been selected then.
    location_column: str = ""

    @property
    def may_identify(self) -> bool:
        """Whether Iceberg allows it as an identifier field."""
        return self.required and self.type not in (FloatType(), DoubleType())

    def __str__(self) -> str:
        return f"{self.name!r} {self.type}{' not null' if self.required else ''}"


@dataclass(frozen=True)
class Target:
    """The table that a binding needs. If `replaces`, a backfill replaces the rows of an older binding; if `keeps_rows`,
    it keeps them."""

    path: TableIdentifier
    owner: Owner
    columns: tuple[NewColumn, ...]
    properties: Mapping[str, str]
    replaces: bool
    settings: BindingSettings = DEFAULT_SETTINGS
    is_new: bool = False  # the task had no such binding before
    keeps_rows: bool = False
    has_other_key: bool = False  # with standard updates, than when the binding was last applied
    has_staged_rows: bool = False  # for its table, under the owner's state key
    other_fields: frozenset[str] = frozenset()  # of the collection, which the binding does not select
    is_for_rejected_rows: bool = False
    format_version: int = FORMAT_VERSIONS[0]  # of the table, if it is created
    keeps_nanoseconds: bool = False  # in new columns of date-times, if the table has version 3
    always_drops: bool = False  # in a backfill, instead of replacing the rows in place
    # Whether the catalog allows them. Apply may learn from a refusal that it does not: the target is still the same.
    has_identifier_fields: bool = field(default=True, compare=False)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The names of the columns that identify a row of a new table."""
        return name_identifiers(self.columns, self.settings.identifier_fields) if self.has_identifier_fields else ()

    @property
    def table_properties(self) -> Mapping[str, str]:
        """The properties that the table gets: those of the config, and what its catalog refuses."""
        return self.properties if self.has_identifier_fields else {**self.properties, **REFUSED_IDENTIFIER_FIELDS}


def name_identifiers(columns: Iterable[NewColumn], identifier_fields: IdentifierFields) -> tuple[str, ...]:
    """The names of the columns that identify a row, as Iceberg's identifier fields.

    There are none if a part of the key cannot be one: the other parts do not identify a row.
    """
    keys = [column for column in columns if column.is_key]
    identify = identifier_fields is IdentifierFields.KEY and all(column.may_identify for column in keys)
    return tuple(column.name for column in keys) if identify else ()
