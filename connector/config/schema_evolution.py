"""How far apply may change a table that exists already: the setting `schema_evolution`."""

from enum import StrEnum


class SchemaEvolution(StrEnum):
    """docs/columns.md says what each allows."""

    STRICT = "strict"
    ADD_COLUMNS = "add_columns"
    FULL = "full"
