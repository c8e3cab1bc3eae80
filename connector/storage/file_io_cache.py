"""FileIOs whose connections stay open.

PyIceberg makes a new one whenever a table is loaded or its files are written, and connecting to a store again takes
longer than writing a small file.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyiceberg.io import (
    ADLS_ACCOUNT_KEY,
    ADLS_CLIENT_SECRET,
    ADLS_SAS_TOKEN,
    GCS_TOKEN,
    S3_PROXY_URI,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    FileIO,
    load_file_io,
)

from connector.host.redaction import hide_obtained
from connector.model.properties import Properties

SECRET_PROPERTIES: Final = frozenset(
    {
        ADLS_ACCOUNT_KEY,
        ADLS_CLIENT_SECRET,
        ADLS_SAS_TOKEN,
        GCS_TOKEN,
        S3_PROXY_URI,
        S3_SECRET_ACCESS_KEY,
        S3_SESSION_TOKEN,
    }
)
FILE_IOS: Final = 32  # more than one, for catalogs that hand out keys for each table


def file_io(properties: Mapping[str, str]) -> FileIO:
    """The same FileIO for the same properties, which say where files are and which keys open them."""
    return _open(Properties(properties))


@lru_cache(FILE_IOS)
def _open(properties: Properties) -> FileIO:
    hide_credentials(properties)  # Spark's workers too, which hear of no secret in any other way
    return load_file_io(dict(properties))


def hide_credentials(properties: Mapping[str, str]) -> None:
    """Those of a store that are among them."""
    for name in SECRET_PROPERTIES & properties.keys():
        hide_obtained(properties[name])
