"""Checks the table properties that PyIceberg reads when it writes a table's metadata."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from textwrap import shorten
from typing import Final

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.utils.properties import property_as_bool, property_as_int

from connector.host.errors import UserError

PROVIDER: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
DIRECTORIES: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
SWITCHES: Final = (TableProperties.OBJECT_STORE_ENABLED, TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS)
PREVIOUS_VERSIONS: Final = TableProperties.METADATA_PREVIOUS_VERSIONS_MAX
NAME_MAPPING: Final = TableProperties.DEFAULT_NAME_MAPPING
QUOTED_CHARACTERS: Final = 60  # of a value
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ValueError if no metadata can be written with these properties."""
    given = dict(properties)
    # PyIceberg would import the module when it names the next file.
    if PROVIDER in given:
        raise ValueError(f"{PROVIDER} is set, but the connector does not run code that a table names")
    for name in DIRECTORIES:
        # PyIceberg would write below the current directory of the process.
        if (path := given.get(name)) and not _ABSOLUTE.match(path):
            raise ValueError(f"{name} is {path!r}; it must be an absolute location, such as s3://bucket/directory")
    for name in SWITCHES:
        with _demand(given, name, "must be true or false"):
            property_as_bool(given, name, False)
    with _demand(given, PREVIOUS_VERSIONS, "must be a whole number"):
        property_as_int(given, PREVIOUS_VERSIONS)
    if mapping := given.get(NAME_MAPPING):
        with _demand(given, NAME_MAPPING, "must be a name mapping, the JSON of Iceberg's specification"):
            parse_mapping_from_json(mapping)


@contextmanager
def name_table_in_errors(table: Table) -> Iterator[None]:
    """Turn a ValueError about a property into a UserError that names the table."""
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"Table {'.'.join(table.name())}: table property {error}. Correct it in the table (in Spark: ALTER TABLE … "
            "SET or UNSET TBLPROPERTIES …)."
        ) from error


@contextmanager
def _demand(properties: Mapping[str, str], name: str, demand: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"{name} is {shorten(properties[name], QUOTED_CHARACTERS, placeholder=' …')!r}; it {demand}"
        ) from error
