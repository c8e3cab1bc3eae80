"""The properties with which a table's files are opened.

The properties are the address of the store and the credentials. They come from the config, from the catalog's server,
and from what the server says about this table. Credentials of a server are asked for again before they expire.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from pyiceberg.io import (
    ADLS_ACCOUNT_KEY,
    ADLS_ACCOUNT_NAME,
    ADLS_BLOB_STORAGE_AUTHORITY,
    ADLS_BLOB_STORAGE_SCHEME,
    ADLS_CLIENT_ID,
    ADLS_CLIENT_SECRET,
    ADLS_DFS_STORAGE_AUTHORITY,
    ADLS_DFS_STORAGE_SCHEME,
    ADLS_SAS_TOKEN,
    ADLS_TENANT_ID,
    AWS_ACCESS_KEY_ID,
    AWS_REGION,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    GCS_SERVICE_HOST,
    GCS_TOKEN,
    GCS_TOKEN_EXPIRES_AT_MS,
    PY_IO_IMPL,
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROXY_URI,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)
from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.host.refresh import Lease, Refreshed
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.storage.store_kinds import AZURE_SCHEMES, S3_SCHEMES

S3_EXPIRES_AT_MS: Final = "s3.session-token-expires-at-ms"  # PyIceberg has no name for it
ADLS_EXPIRES_AT_MS: Final = "adls.sas-token-expires-at-ms"  # nor for this
S3_PATH_STYLE: Final = "s3.path-style-access"  # nor for this
# Ours: PyArrow finds the credentials. The value is the path of the file with a workload identity's token, or empty. It
# comes from the config only, not from servers.
ADLS_MACHINE_CREDENTIALS: Final = "adls.machine-credentials"
AZURE_TOKEN_FILE: Final = "AZURE_FEDERATED_TOKEN_FILE"  # the variable that Azure's own clients read

STORE_FILE_IO: Final = "connector.storage.file_io.StoreFileIO"  # PyIceberg's property `py-io-impl` has it

# The properties that it reads, and when they expire. All other properties that a server sends are ignored.
FILE_PROPERTIES: Final = frozenset(
    {
        ADLS_ACCOUNT_KEY,
        ADLS_ACCOUNT_NAME,
        ADLS_BLOB_STORAGE_AUTHORITY,
        ADLS_BLOB_STORAGE_SCHEME,
        ADLS_CLIENT_ID,
        ADLS_CLIENT_SECRET,
        ADLS_DFS_STORAGE_AUTHORITY,
        ADLS_DFS_STORAGE_SCHEME,
        ADLS_EXPIRES_AT_MS,
        ADLS_MACHINE_CREDENTIALS,
        ADLS_SAS_TOKEN,
        ADLS_TENANT_ID,
        GCS_SERVICE_HOST,
        GCS_TOKEN,
        GCS_TOKEN_EXPIRES_AT_MS,
        S3_ACCESS_KEY_ID,
        S3_ANONYMOUS,
        S3_CONNECT_TIMEOUT,
        S3_ENDPOINT,
        S3_EXPIRES_AT_MS,
        S3_FORCE_VIRTUAL_ADDRESSING,
        S3_PROXY_URI,
        S3_REGION,
        S3_REQUEST_TIMEOUT,
        S3_SECRET_ACCESS_KEY,
        S3_SESSION_TOKEN,
    }
)
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
# By a location's scheme: the properties that sign in to the store. One of them must be set.
SIGN_INS: Final = {
    **dict.fromkeys(S3_SCHEMES, (S3_ACCESS_KEY_ID, S3_ANONYMOUS)),
    "gs": (GCS_TOKEN,),
    **dict.fromkeys(AZURE_SCHEMES, (ADLS_ACCOUNT_KEY, ADLS_SAS_TOKEN, ADLS_CLIENT_SECRET, ADLS_MACHINE_CREDENTIALS)),
}
SYNONYMS: Final = {
    AWS_ACCESS_KEY_ID: S3_ACCESS_KEY_ID,
    AWS_REGION: S3_REGION,
    AWS_SECRET_ACCESS_KEY: S3_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN: S3_SESSION_TOKEN,
}
# Catalogs vend these with the account's host appended to the name.
ACCOUNT_PROPERTIES: Final = (ADLS_SAS_TOKEN, ADLS_EXPIRES_AT_MS)
# Such a name of a token, if the account is in another cloud than PyArrow assumes: OneLake, or Azure in China.
_TOKEN_ELSEWHERE: Final = re.compile(
    rf"{re.escape(ADLS_SAS_TOKEN)}\.[^.]+(\.(?:[^.]+\.)*?)(?:blob|dfs)(\.(?!core\.windows\.net$).+)"
)
EXPIRES_AT_MS: Final = {
    S3_SESSION_TOKEN: S3_EXPIRES_AT_MS,
    GCS_TOKEN: GCS_TOKEN_EXPIRES_AT_MS,
    ADLS_SAS_TOKEN: ADLS_EXPIRES_AT_MS,
}
# By a sign-in: the properties of other sign-ins, with which it would fail.
DISPLACED_BY: Final = {
    S3_ACCESS_KEY_ID: (S3_SESSION_TOKEN, S3_EXPIRES_AT_MS),
    ADLS_SAS_TOKEN: (
        ADLS_ACCOUNT_KEY,
        ADLS_CLIENT_ID,
        ADLS_CLIENT_SECRET,
        ADLS_EXPIRES_AT_MS,
        ADLS_MACHINE_CREDENTIALS,
        ADLS_TENANT_ID,
    ),
}

# By what signs in to a store: the properties that say which server the requests go to, with the token. S3 is left out:
# its requests have a signature instead of the secret, and often only the catalog knows the endpoint.
_ADDRESSES: Final = {
    SIGN_INS["gs"]: (GCS_SERVICE_HOST,),
    SIGN_INS["abfss"]: (
        ADLS_ACCOUNT_NAME,
        ADLS_BLOB_STORAGE_AUTHORITY,
        ADLS_BLOB_STORAGE_SCHEME,
        ADLS_DFS_STORAGE_AUTHORITY,
        ADLS_DFS_STORAGE_SCHEME,
    ),
}

# How long a token without an expiry is assumed to be valid: AWS issues none for less than 15 minutes.
SHORTEST_LIFE: Final = 900  # seconds
_TOO_LATE_MS: Final = 253_402_300_800_000  # the year 10000, which Python does not have
DEFAULT_REGION: Final = "us-east-1"  # for stores without regions; PyIceberg would ask Amazon

FileAccess: TypeAlias = Lease[Properties]
FileCredentials: TypeAlias = Callable[[], Mapping[str, str]]  # the config's, valid now, as FileIO properties


def file_properties(*sources: Mapping[str, str]) -> dict[str, str]:
    """Return the FileIO properties of all sources, by PyIceberg's names. A later source wins.

    The host in the name of a SAS token only counts if no source has an address of the store.
    """
    found: dict[str, str] = {}
    hosts: dict[str, str] = {}
    for source in sources:
        translated = {SYNONYMS[name]: value for name, value in source.items() if name in SYNONYMS}
        translated |= _read_account(source)
        translated |= {name: value for name, value in source.items() if name in FILE_PROPERTIES}
        if source.get(S3_PATH_STYLE) == "true":
            translated[S3_FORCE_VIRTUAL_ADDRESSING] = "false"
        for displaced in (others for sign_in, others in DISPLACED_BY.items() if sign_in in translated):
            found = {name: value for name, value in found.items() if name not in displaced}
        found |= translated
        hosts |= _read_host(source)
    found = hosts | found
    if S3_ENDPOINT in found:
        found.setdefault(S3_REGION, DEFAULT_REGION)
    return {**found, PY_IO_IMPL: STORE_FILE_IO}


def may_be_sent(name: str) -> bool:
    """Whether `file_properties` may read a property of this name from a server."""
    is_read = name in FILE_PROPERTIES | SYNONYMS.keys() | {S3_PATH_STYLE} or _read_account({name: ""})
    return bool(is_read) and name != ADLS_MACHINE_CREDENTIALS


def keep_addresses(properties: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without the addresses that a server has sent for a store of Google or Azure, if something
    of the config signs in there. `own` are the config's properties, which may have another address."""
    found = dict(properties)
    for sign_ins, addresses in _ADDRESSES.items():
        if any(name in own and found.get(name) == own[name] for name in sign_ins):
            kept = {name: value for name, value in found.items() if name not in addresses}
            found = kept | {name: own[name] for name in addresses if name in own}
    return found


def _read_account(source: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that have an Azure account's host in their names, by plain names, and the account."""
    found: dict[str, str] = {}
    for name, value in source.items():
        for plain in ACCOUNT_PROPERTIES:
            if name.startswith(f"{plain}."):
                account = name.removeprefix(f"{plain}.").partition(".")[0]
                found |= {plain: value, ADLS_ACCOUNT_NAME: account}
    return found


def _read_host(source: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the store that the name of a SAS token has. PyArrow puts the account in front."""
    if match := next(filter(None, map(_TOKEN_ELSEWHERE.fullmatch, source)), None):
        before, after = match.groups()
        return {
            ADLS_BLOB_STORAGE_AUTHORITY: f"{before}blob{after}",
            ADLS_DFS_STORAGE_AUTHORITY: f"{before}dfs{after}",
        }
    return {}


def add_expiry(vended: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a catalog has just vended. A token without an expiry gets the earliest one."""
    vended = {**vended, **_read_account(vended)}
    assumed = str(int((time.time() + SHORTEST_LIFE) * 1000))
    ends = {end: assumed for token, end in EXPIRES_AT_MS.items() if token in vended and not read_end(vended, end)}
    return {**vended, **ends}


def read_end(properties: Mapping[str, str], name: str) -> float | None:
    """Return when a token expires, in seconds since the epoch. None if the property is not set, or is no time."""
    try:
        milliseconds = int(properties.get(name, ""))
    except ValueError:
        return None
    return milliseconds / 1000 if 0 < milliseconds < _TOO_LATE_MS else None  # servers write either for never


def has_sign_in(scheme: str, properties: Mapping[str, str]) -> bool:
    """Whether the properties can sign in to a store of this scheme. An empty key or token cannot."""
    sign_ins = SIGN_INS.get(scheme)
    return sign_ins is None or any(_signs_in(name, properties[name]) for name in sign_ins if name in properties)


def _signs_in(name: str, value: str) -> bool:
    if name == S3_ANONYMOUS:
        return value.lower() == "true"
    return bool(value) or name == ADLS_MACHINE_CREDENTIALS


def keep_access_fresh(
    path: TableIdentifier, first: FileAccess, load_table: Callable[[], Table]
) -> Refreshed[Properties]:
    """Return the access to a table's files. Before its credentials expire, the table is loaded for new ones."""
    return Refreshed(f"the credentials for the files of table {path}", lambda: access_to(load_table()), first)


def access_to(table: Table) -> FileAccess:
    """Return the properties that open a table's files for their writers, until they expire.

    Raises UserError if there are no credentials: the machine's may not be used.
    """
    properties = file_properties(table.io.properties)
    scheme = urlsplit(table.location()).scheme
    if not has_sign_in(scheme, properties):
        where = (
            "/credentials, or /storage/credentials if /storage is set"
            if scheme.startswith("s3")
            else "them in /storage"
        )
        raise UserError(
            f"table {TableIdentifier.of(table)}: neither the config nor the catalog has credentials for its files at "
            f"{table.location()}. Set {where}, or let the catalog vend them."
        )
    ends = filter(None, (read_end(properties, name) for name in EXPIRES_AT_MS.values()))
    return Lease.until(Properties(properties), min(ends, default=None))
