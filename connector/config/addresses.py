"""Addresses of servers. Clients have many errors for a host that cannot exist, or for a port that is none: both are
refused here.

A parser raises ValueError with the demand that the setting does not meet, never with its value.
"""

import re
from typing import Final

from connector.config.secret import Secret

HTTP_SCHEMES: Final = ("http", "https")
HTTP_DEMAND: Final = (
    "must be an address with a host that can exist, with a port from 1 to 65535 or none, and without spaces or line "
    "breaks"
)
METASTORES_DEMAND: Final = (
    "must be thrift://host:port, or several of those separated by commas, with hosts that can exist and ports from 1 "
    "to 65535"
)
POSTGRESQL_DEMAND: Final = (
    "must be postgresql://user@host:port/database, with one host that can exist, and with a port from 1 to 65535 or "
    "none"
)
PARAMETERS_DEMAND: Final = (
    "must have only parameters of libpq, PostgreSQL's client, after the ?, each of them once and neither host nor "
    "port, such as sslmode=verify-full&sslrootcert=/etc/ca.pem; and a % only before two hexadecimal digits"
)

SECRET_PARAMETERS: Final = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
SECRETS_DEMAND: Final = (
    "must have no secret among its parameters, since errors show the address: put the password into /catalog/password, "
    "and leave out sslpassword, oauth_client_secret, scram_client_key and scram_server_key"
)


def has_server(address: str) -> bool:
    """Whether an address has a host that can exist, and a port from 1 to 65535 or none."""
    from urllib.parse import urlsplit  # `spec` does not need it

    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:
        return False
    is_host = ":" in host or re.fullmatch(r"[\w.-]+", host)  # with a colon, urlsplit has parsed it as an IPv6 address
    # urlsplit removes line breaks.
    return bool(is_host) and port != 0 and not parts.netloc.endswith(":") and not re.search(r"[\x00-\x20\x7f]", address)


def parse_http_address(text: str) -> str:
    """Check the host and the port of an address."""
    if not has_server(text):
        raise ValueError(HTTP_DEMAND)
    return text


def parse_server_address(text: str) -> str:
    """Like `parse_http_address`, but without slashes at the end, since paths are appended. It may have no query."""
    if "?" in text or "#" in text:
        raise ValueError("must not contain # or ?, since paths are appended to it")
    return parse_http_address(text).rstrip("/")


def parse_store_address(text: str) -> str:
    """Check an address, and return it with its scheme in lower case: PyArrow knows no other, and RFC 3986 ignores the
    case. Without a scheme, it is https, as PyArrow takes it."""
    scheme, separator, rest = text.partition("://") if "//" in text else ("https", "://", text)
    address = f"{scheme.lower()}{separator}{rest}"
    if scheme.lower() not in HTTP_SCHEMES or not has_server(address):
        raise ValueError(f"{HTTP_DEMAND}, such as https://store.example.com:9000")
    return address


def parse_webhook_address(text: str) -> Secret:
    """Check the host and the port of an address. Otherwise each message would fail, and no error could say why."""
    return Secret(parse_http_address(text))


def parse_metastores(text: str) -> str:
    """Check the addresses of metastores, with commas between them."""
    if not all(map(has_server, text.split(","))):
        raise ValueError(METASTORES_DEMAND)
    return text


def parse_hdfs_directory(text: str) -> str:
    """Check the host and the port of a directory's address, and return it without slashes at its end."""
    if not has_server(text.replace(" ", "")):  # a directory's name may have spaces
        raise ValueError("must have a host that can exist, and a port from 1 to 65535 or none")
    return text.rstrip("/")


def parse_postgresql_address(text: str) -> str:
    """Check the address of a database, and the parameters of the connection."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    address, _, query = text.partition("?")
    if not has_server(address):
        raise ValueError(POSTGRESQL_DEMAND)
    names = [parameter.partition("=")[0] for parameter in query.split("&")]
    try:
        given = conninfo_to_dict(text)  # with names as libpq reads them: it decodes pass%77ord
    except ProgrammingError:
        raise ValueError(PARAMETERS_DEMAND) from None
    if not SECRET_PARAMETERS.isdisjoint(given):
        raise ValueError(SECRETS_DEMAND)
    if len(names) != len({*names}) or {"host", "port"} & {*names}:
        raise ValueError(PARAMETERS_DEMAND)
    return text
