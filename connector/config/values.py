"""What single settings mean. A ValueError says what a setting must be, never what it was."""

import json
import os
import posixpath
from base64 import b64decode
from datetime import timedelta
from pathlib import Path
from typing import Final

import isodate

from connector.config.secret import Secret
from connector.model.properties import Properties
from protocol.flow import Json

MAX_UPLOAD_INTERVAL: Final = timedelta(hours=4)

ALLOW_EXISTING_TABLES: Final = "allow_existing_tables_for_new_bindings"
RETAIN_EXISTING_DATA: Final = "retain_existing_data_on_backfill"
MACHINE_CREDENTIALS: Final = "use_machine_credentials"
SERVICE_ACCOUNT: Final = ("client_email", "private_key", "token_uri")
FEATURE_FLAGS: Final = (ALLOW_EXISTING_TABLES, RETAIN_EXISTING_DATA, MACHINE_CREDENTIALS)


def upload_interval(text: str) -> timedelta:
    demand = "must be a duration of hours, minutes and seconds, such as PT5M or PT1H30M, and at most PT4H"
    # isodate reads a bare PT as zero. Days and longer are beyond the limit anyway.
    if text == "PT" or not text.startswith("PT"):
        raise ValueError(demand)
    try:
        interval: timedelta = isodate.parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(demand) from error
    if interval > MAX_UPLOAD_INTERVAL:
        raise ValueError(demand)
    return interval


def feature_flags(text: str) -> frozenset[str]:
    """The flags that are on; of a flag that is given twice, the last counts."""
    flags: dict[str, bool] = {}
    for given in filter(None, map(str.strip, text.split(","))):
        flag = given.removeprefix("no_")
        if flag not in FEATURE_FLAGS:
            raise ValueError(f"{given!r} is not a feature flag; the known ones are {', '.join(FEATURE_FLAGS)}")
        flags[flag] = flag == given
    return frozenset(flag for flag, on in flags.items() if on)


def endpoint(text: str) -> str:
    """An address whose scheme is in lower case: PyArrow knows no other, and RFC 3986 has them mean the same."""
    scheme, separator, rest = text.partition("://")
    return f"{scheme.lower()}{separator}{rest}" if separator else text


def object_prefix(text: str) -> str:
    """The names' part before that of a table. Stores' clients refuse empty parts, . and .. in a name."""
    return posixpath.normpath(f"/{text.strip('/')}").removeprefix("/")


def warehouse_directory(text: str) -> Path:
    """The absolute directory that a path or a file:// URI names."""
    path = text
    if text.startswith("file:"):
        path = text.removeprefix("file:").removeprefix("//localhost").removeprefix("//")
    if "://" in path or (path != text and not path.startswith("/")):
        raise ValueError("must be a directory of this machine: a path, or file:// and an absolute path")
    directory = os.path.abspath(path)
    # PyIceberg reads a location as a URI: it would write to the part before such a character, another directory.
    if "#" in directory or "?" in directory:
        raise ValueError("must be a directory without # and ? in its whole path")
    return Path(directory)


def service_account(text: str) -> dict[str, str]:
    """A service account's key, as Google's console writes it."""
    demand = "must be the JSON key of a service account, as Google's console writes it, with {}"
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    missing = [name for name in SERVICE_ACCOUNT if not isinstance(key, dict) or not isinstance(key.get(name), str)]
    if missing:
        raise ValueError(demand.format(", ".join(SERVICE_ACCOUNT)))
    return dict(key)


def secret(properties: Json, name: str) -> Secret | None:
    value = properties.get(name)
    return Secret(value) if value else None


def settings(properties: Json, name: str) -> Properties:
    return Properties(properties.get(name))


def azure_account_key(text: str) -> None:
    try:
        b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be an access key of the storage account, as Azure's portal shows it") from None


def not_yet_available(turned_on: bool) -> None:
    if turned_on:
        raise ValueError("must be false: tables of format version 3 are not yet available")
