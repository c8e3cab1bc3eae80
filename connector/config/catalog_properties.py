"""A catalog's further properties under PyIceberg's own names: those that the config has no setting for."""

from collections.abc import Mapping
from typing import Final

from protocol.flow import Json

HEADER: Final = r"^header\."
SIGNED: Final = "rest.sigv4-enabled"
SIGNING_NAME: Final = "rest.signing-name"
SIGNING_REGION: Final = "rest.signing-region"

REST_PROPERTIES: Final[Mapping[str, str]] = {
    "audience": "The audience to ask for with the credential.",
    "resource": "The resource to ask for with the credential.",
    "oauth2-server-uri": "Where tokens are issued; the same as oauth2_server_uri.",
    "prefix": "The prefix of the catalog's paths, where /v1/config does not say it.",
    "namespace-separator": "What separates the parts of a namespace in the catalog's paths.",
    "rest-page-size": "How many tables to ask for at once when they are listed.",
    SIGNED: "Whether every request is signed with the AWS keys (SigV4), as Amazon's catalogs demand.",
    SIGNING_NAME: "The AWS service that requests are signed for, such as glue; execute-api unless it is set.",
    SIGNING_REGION: "The AWS region that requests are signed for; that of the bucket unless it is set.",
    "view-endpoints-supported": "Whether a catalog that does not list its endpoints has views.",
}
FILE_PROPERTIES: Final[Mapping[str, str]] = {
    "s3.anonymous": "Whether to use the bucket without signing in.",
    "s3.connect-timeout": "Seconds to wait for a connection to the object store.",
    "s3.force-virtual-addressing": "Whether the bucket is part of the host name, beside s3_endpoint too.",
    "s3.proxy-uri": "The proxy through which the object store is reached.",
    "s3.request-timeout": "Seconds to wait for an answer of the object store.",
}
MAY_HOLD_A_PASSWORD: Final = ("s3.proxy-uri",)
GLUE_PROPERTIES: Final[Mapping[str, str]] = {
    "glue.skip-archive": "Whether Glue keeps no older versions of a table; true unless it is set.",
}
HIVE_USER: Final = "ugi"
HIVE_PROPERTIES: Final[Mapping[str, str]] = {
    "hive.hive2-compatible": "Whether Hive itself sees timestamps with a zone as plain ones; true unless it is set, "
    "for Hive 2 has no others.",
    HIVE_USER: "The user that the metastore is to act as, and their groups: user:group.",
}

_SIGN_IN: Final = "/credentials"
_STORE: Final = "/storage"
# What else PyIceberg reads, and the setting of the config that means the same.
SETTINGS: Final[Mapping[str, str]] = {
    **{name: f"/catalog/{name}" for name in ("uri", "warehouse", "credential", "token", "scope")},
    "glue.id": "/catalog/glue_id",
    **dict.fromkeys(("s3.region", "glue.region", "client.region"), "/region"),
    "s3.endpoint": "/s3_endpoint",
    **{
        f"{of}.{name}": _SIGN_IN
        for of in ("s3", "glue", "client")
        for name in ("access-key-id", "secret-access-key", "session-token", "profile-name")
    },
    **{f"{of}.{name}": _SIGN_IN for of in ("s3", "client") for name in ("role-arn", "role-session-name")},
    **{f"adls.{name}": _STORE for name in ("account-name", "account-key", "sas-token")},
    **{f"adls.{name}": _STORE for name in ("tenant-id", "client-id", "client-secret")},
    **{f"gcs.{name}": _STORE for name in ("oauth2.token", "service.host")},
    **dict.fromkeys(("hdfs.host", "hdfs.port"), _STORE),
}


def settings_instead(known: Mapping[str, Json]) -> Mapping[str, str]:
    """By names that PyIceberg knows, the settings to use instead; empty unless the known ones are a catalog's
    properties."""
    return SETTINGS if known.keys() >= FILE_PROPERTIES.keys() else {}


def is_signed(properties: Mapping[str, str]) -> bool:
    return properties.get(SIGNED, "").lower() == "true"


def schema(order: int, *tables: Mapping[str, str], headers: bool = False) -> Json:
    """The schema of a catalog's `properties`."""
    known = {name: description for table in tables for name, description in table.items()}
    patterns = {"patternProperties": {HEADER: {"type": "string", "secret": True}}} if headers else {}
    return {
        "type": "object",
        "title": "Properties",
        "description": "Further catalog properties, under PyIceberg's own names"
        + (", and headers of every request, as header.<name>." if headers else "."),
        "order": order,
        "advanced": True,
        "properties": {
            name: {"type": "string", "title": name, "description": description, "order": place}
            | ({"secret": True} if name in MAY_HOLD_A_PASSWORD else {})
            for place, (name, description) in enumerate(known.items())
        },
        **patterns,
        "additionalProperties": False,
    }
