"""How far apply may change a table that exists already: the setting `schema_evolution`."""

from enum import StrEnum


class SchemaEvolution(StrEnum):
    """See docs/columns.md for what each allows."""

    STRICT = "strict"
    ADD_COLUMNS = "add_columns"
    FULL = "full"
