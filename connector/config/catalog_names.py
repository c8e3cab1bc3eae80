"""Which names of namespaces and tables each catalog takes: a ValueError says what a name must be."""

import re
from collections.abc import Mapping
from typing import Any, Final

from connector.config.catalog_schemas import HIVE, REST, S3_TABLES

LONGEST_NAME: Final = 255  # characters, in AWS Glue and in the tables of an SQL catalog
ANYWHERE: Final = (r"[^\x00-\x1f\x7f]*", "must not contain line breaks, tabs and other control characters")

# What some catalogs demand beside that.
DEMANDS: Final[Mapping[str, tuple[str, str]]] = {
    # Names are parts of paths, where web servers refuse these characters in any notation.
    REST: (r"[^/\\%]*", r"must not contain /, \ or %, which the servers of REST catalogs refuse"),
    HIVE: (
        "[0-9a-z_]{1,128}",
        "must consist of at most 128 letters without accents, digits and underscores: Hive takes no other name",
    ),
    S3_TABLES: (
        "[0-9a-z]([0-9a-z_]*[0-9a-z])?",
        "must consist of letters, digits and, in between, underscores: Amazon S3 Tables takes no other name",
    ),
}


def check_name(catalog_type: Any, text: str) -> None:
    """Check the name of a namespace or a table. An unknown type of catalog is another problem."""
    name = text.lower()  # names are lower-cased later
    if not name.strip():
        raise ValueError("must not be blank")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"must not be longer than {LONGEST_NAME} characters")
    further = DEMANDS.get(catalog_type, ANYWHERE) if isinstance(catalog_type, str) else ANYWHERE
    for pattern, demand in (ANYWHERE, further):
        if not re.fullmatch(pattern, name, re.DOTALL):
            raise ValueError(demand)
