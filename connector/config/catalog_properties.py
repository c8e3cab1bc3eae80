"""Further properties of catalogs, under PyIceberg's names: those that the config has no setting for."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from connector.config.addresses import HTTP_SCHEMES, parse_http_address
from connector.config.definition import Setting
from connector.config.values import parse_word
from connector.model.properties import Properties
from protocol.flow import Json

HEADER: Final = r"^header\."
SIGNED: Final = "rest.sigv4-enabled"
SIGNING_NAME: Final = "rest.signing-name"
SIGNING_REGION: Final = "rest.signing-region"
AUTH_TYPE: Final = "rest.auth.type"
GOOGLE_AUTH: Final = "google"

REST_PROPERTIES: Final[Mapping[str, str]] = {
    "audience": "The audience to request with the credential.",
    "resource": "The resource to request with the credential.",
    "oauth2-server-uri": "The address of the token server. The same as oauth2_server_uri.",
    "prefix": "The prefix of the catalog's paths, if /v1/config does not return it.",
    "namespace-separator": "The separator between the parts of a namespace in the catalog's paths.",
    "rest-page-size": "The number of tables to request at once when tables are listed.",
    SIGNED: "true to sign every request with the AWS credentials (SigV4). Amazon's catalogs require it.",
    SIGNING_NAME: "The AWS service to sign requests for, such as glue. The default is execute-api.",
    SIGNING_REGION: "The AWS region to sign requests for. The default is the region of the bucket.",
    AUTH_TYPE: "google: sign in with tokens of Google. Without a service account, they are this machine's, which the "
    "feature flag use_machine_credentials must allow.",
    "view-endpoints-supported": "true if the catalog has views, but does not list its endpoints.",
}
FILE_PROPERTIES: Final[Mapping[str, str]] = {
    "s3.anonymous": "true to use the bucket without credentials.",
    "s3.connect-timeout": "The timeout for connecting to the object store, in seconds.",
    "s3.force-virtual-addressing": "true to put the bucket into the host name, even if s3_endpoint is set.",
    "s3.proxy-uri": "The proxy for requests to the object store.",
    "s3.request-timeout": "The timeout for responses of the object store, in seconds.",
}
MAY_HOLD_A_PASSWORD: Final = ("s3.proxy-uri",)
GLUE_PROPERTIES: Final[Mapping[str, str]] = {
    "glue.skip-archive": "Do not keep older versions of a table in Glue. The default is true.",
}
HIVE_USER: Final = "ugi"
HIVE_PROPERTIES: Final[Mapping[str, str]] = {
    "hive.hive2-compatible": "Show timestamps with a zone to Hive as timestamps without one. The default is true, "
    "because Hive 2 has no timestamps with a zone.",
    HIVE_USER: "The user that the metastore acts as, with its groups: user:group.",
}

_CREDENTIALS: Final = "/credentials"
_STORAGE: Final = "/storage"
# The other properties that PyIceberg reads, and the setting of the config that has the same effect.
SETTINGS: Final[Mapping[str, str]] = {
    **{name: f"/catalog/{name}" for name in ("uri", "warehouse", "credential", "token", "scope")},
    "glue.id": "/catalog/glue_id",
    **dict.fromkeys(("s3.region", "glue.region", "client.region"), "/region"),
    "s3.endpoint": "/s3_endpoint",
    **{
        f"{of}.{name}": _CREDENTIALS
        for of in ("s3", "glue", "client")
        for name in ("access-key-id", "secret-access-key", "session-token", "profile-name")
    },
    **{f"{of}.{name}": _CREDENTIALS for of in ("s3", "client") for name in ("role-arn", "role-session-name")},
    **{f"adls.{name}": _STORAGE for name in ("account-name", "account-key", "sas-token")},
    **{f"adls.{name}": _STORAGE for name in ("tenant-id", "client-id", "client-secret")},
    **{f"gcs.{name}": _STORAGE for name in ("oauth2.token", "service.host")},
    **dict.fromkeys(("hdfs.host", "hdfs.port"), _STORAGE),
}


def settings_instead(known: Mapping[str, Json]) -> Mapping[str, str]:
    """Return the settings to use instead of other properties, by their names, if `known` are a catalog's properties."""
    return SETTINGS if known.keys() >= FILE_PROPERTIES.keys() else {}


def is_signed(properties: Mapping[str, str]) -> bool:
    """Whether these properties ask for requests with an AWS signature (SigV4)."""
    return properties.get(SIGNED, "").lower() == "true"


LONGEST_TIMEOUT: Final = 86_400  # seconds
_HEADER_NAME: Final = r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_HEADER_VALUE: Final = r"(?![ \t])[\t\x20-\x7e\xa0-\xff]*"  # in Latin-1; HTTP has no other


def _check_boolean(value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")


def _check_timeout(value: str) -> None:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or not 0 < float(value) <= LONGEST_TIMEOUT:
        raise ValueError(f"must be a number of seconds, such as 60, and at most {LONGEST_TIMEOUT}")


def _check_count(value: str) -> None:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise ValueError("must be a whole number from 1 to 999999999")


def _check_address(value: str) -> None:
    if value.partition("://")[0] not in HTTP_SCHEMES:
        raise ValueError("must begin with http:// or https://")
    parse_http_address(value)


def _check_word(value: str) -> None:
    if parse_word(value) != value:
        raise ValueError("must not begin or end with white space")


def _check_auth_type(value: str) -> None:
    if value != GOOGLE_AUTH:
        raise ValueError(f"must be {GOOGLE_AUTH}: the other ways to sign in have settings of their own")


def _check_header(value: str) -> None:
    if not re.fullmatch(_HEADER_VALUE, value):
        raise ValueError("must be one line of Latin-1 characters, and not begin with a space")


# The properties that are more than a text. PyIceberg reads some of them only when it uses them.
_CHECKS: Final[Mapping[str, Callable[[str], None]]] = {
    "oauth2-server-uri": _check_address,
    "rest-page-size": _check_count,
    AUTH_TYPE: _check_auth_type,
    SIGNED: _check_boolean,
    SIGNING_NAME: _check_word,
    SIGNING_REGION: _check_word,
    "view-endpoints-supported": _check_boolean,
    "s3.anonymous": _check_boolean,
    "s3.connect-timeout": _check_timeout,
    "s3.force-virtual-addressing": _check_boolean,
    "s3.proxy-uri": _check_address,
    "s3.request-timeout": _check_timeout,
    "glue.skip-archive": _check_boolean,
    "hive.hive2-compatible": _check_boolean,
}


def check_property(name: str, value: str) -> None:
    """Check the name and the value of a catalog property. Raises a ValueError that says what it must be."""
    header = re.sub(HEADER, "", name)
    if header != name:
        if not re.fullmatch(_HEADER_NAME, header):
            raise ValueError("must have the name of a header after `header.`: letters, digits and hyphens")
        _check_header(value)
    elif value and name in _CHECKS:
        _CHECKS[name](value)


def _parse_properties(values: Mapping[str, str]) -> Properties:
    """An empty text counts as absent, as in other settings, but a header may be empty."""
    return Properties({name: value for name, value in values.items() if value or re.search(HEADER, name)})


def properties_setting(*tables: Mapping[str, str], has_headers: bool = False) -> Setting:
    """Return the setting `properties` of a catalog that reads the properties of these tables."""
    known = {name: description for table in tables for name, description in table.items()}
    headers = {"patternProperties": {HEADER: {"type": "string", "secret": True}}} if has_headers else {}
    return Setting(
        "Properties",
        "Further catalog properties, under PyIceberg's names."
        + (" A property header.<name> is a header of every request." if has_headers else ""),
        is_advanced=True,
        parse=_parse_properties,
        keywords={
            "properties": {
                name: {"type": "string", "title": name, "description": description, "order": order}
                | ({"secret": True} if name in MAY_HOLD_A_PASSWORD else {})
                for order, (name, description) in enumerate(known.items())
            },
            **headers,
            "additionalProperties": False,
        },
    )
