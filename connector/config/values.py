"""Types, patterns and parsers of single settings.

A parser raises ValueError with the demand that the setting does not meet, never with its value.
"""

import json
import os
import posixpath
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from connector.config.secret import Secret

DEFAULT_UPLOAD_INTERVAL: Final = timedelta(minutes=5)
MAX_UPLOAD_INTERVAL: Final = timedelta(hours=4)

ALLOW_EXISTING_TABLES: Final = "allow_existing_tables_for_new_bindings"
RETAIN_EXISTING_DATA: Final = "retain_existing_data_on_backfill"
MACHINE_CREDENTIALS: Final = "use_machine_credentials"
ALWAYS_DROP: Final = "always_drop_tables_on_backfill"
# Flags of Estuary's connectors without an effect here: the names of new directories are others with or without the
# first one, and no rows are deleted after a capture has read its source again, which the second one asks for.
WITHOUT_EFFECT: Final = ("nested_dot_hash_location_style", "truncate_after_backfill")
SERVICE_ACCOUNT: Final = ("client_email", "private_key", "token_uri")
FORMAT_VERSIONS: Final = (2, 3)  # of Iceberg tables that are written
FORMAT_VERSION: Final = "format-version"  # a table property, which Iceberg's catalogs read when they create a table
FEATURE_FLAGS: Final = (ALLOW_EXISTING_TABLES, RETAIN_EXISTING_DATA, ALWAYS_DROP, MACHINE_CREDENTIALS, *WITHOUT_EFFECT)


LONGEST_NAME: Final = 255  # characters, in AWS Glue and in the tables of an SQL catalog
CONTAINER_LENGTHS: Final = range(3, 64)  # characters, in Azure
CONTROL_CHARACTER: Final = r"[\x00-\x1f\x7f]"
WITHOUT_CONTROL: Final = "must not contain line breaks, tabs or other control characters"

# Of the secret that signs messages to a webhook.
SIGNING_SECRET_PREFIX: Final = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64  # bytes

# Patterns for texts. They have no look-around: Flow refuses a schema with an expression that Rust's `regex` cannot
# compile. Those of optional settings accept an empty text: Flow's form has one where nothing was entered.
WITHOUT_DOTS: Final = "^[^.]*$"
WITHOUT_SLASHES: Final = "^[^/]*$"
WITHOUT_URI_SIGNS: Final = "^[^#?]*$"
HTTP_ADDRESS: Final = "^(https?://|$)"
WEBHOOK_ADDRESS: Final = "^https?://[^/?#@\\s]+([/?][^#\\s]*)?$"
POSTGRESQL: Final = "^postgresql://([^:@/?]*@)?[^@/?]+/[^/?]+([?].*)?$"
METASTORES: Final = "^thrift://[^/?#@,]+(,thrift://[^/?#@,]+)*$"
TABLE_BUCKET_ARN: Final = "^arn:aws[-a-z]*:s3tables:[-a-z0-9]+:[0-9]+:bucket/.+$"
HDFS_DIRECTORY: Final = "^hdfs://[^/#?@]+/[^#?]+$"
AZURE_ACCOUNT: Final = "^[a-z0-9]{3,24}$"
AZURE_CONTAINER: Final = "^[a-z0-9](-?[a-z0-9])*$"
ROLE_ARN: Final = "^arn:aws[-a-z]*:iam::[0-9]+:role/.+$"
ACCESS_KEY_ID: Final = "(AKIA|ASIA)[0-9A-Z]{16}"
SPARK_SETTING: Final = r"^spark\."
TIME_OF_DAY: Final = "^((0?[0-9]|1[0-9]|2[0-3]):[0-5][0-9])?$"


def _in_any_case(expression: str) -> str:
    """Return an expression that ignores case. JSON schemas have no flags for that."""
    return "".join(f"[{sign.upper()}{sign}]" if sign.isalpha() else sign for sign in expression)


# The names of Spark's settings that hold a secret. Spark's own list is shorter.
SECRET_SETTING: Final = "|".join(
    map(_in_any_case, ("secret", "password", "passphrase", "token", "credential$", "access.?key", "account.?key"))
)

# By pattern: what a text must be.
PATTERN_DEMANDS: Final[Mapping[str, str]] = {
    WITHOUT_DOTS: "must not contain a dot",
    WITHOUT_SLASHES: "must be a name, without a slash",
    # PyIceberg reads a location as a URI. It would write to the part before such a character.
    WITHOUT_URI_SIGNS: "must not contain # or ?",
    HTTP_ADDRESS: "must begin with http:// or https://",
    WEBHOOK_ADDRESS: "must begin with http:// or https://, and have no user, password, fragment, space or line break",
    POSTGRESQL: "must be postgresql://user@host/database. Put the password into /catalog/password",
    METASTORES: "must be thrift://host:port, or several of those separated by commas",
    TABLE_BUCKET_ARN: "must be the ARN of a table bucket, such as arn:aws:s3tables:us-east-1:123456789012:bucket/lake",
    HDFS_DIRECTORY: "must be a directory of HDFS, such as hdfs://namenode:8020/lake",
    AZURE_ACCOUNT: "must be the name of a storage account: 3 to 24 lower-case letters and digits",
    AZURE_CONTAINER: "must be the name of a container: 3 to 63 lower-case letters, digits and single hyphens",
    ROLE_ARN: "must be the ARN of a role, such as arn:aws:iam::123456789012:role/flow",
    TIME_OF_DAY: "must be a time of day from 00:00 to 23:59, such as 09:00",
    SPARK_SETTING: "must be a setting whose name begins with spark.",
}


class SchemaEvolution(StrEnum):
    """How far apply may change a table that exists: docs/columns.md says what each mode allows."""

    STRICT = "strict"
    ADD_COLUMNS = "add_columns"
    FULL = "full"


class NameCase(StrEnum):
    """The case of letters in names of new columns, or of namespaces and tables."""

    PRESERVE = "preserve"
    LOWERCASE = "lowercase"
    UPPERCASE = "uppercase"


def parse_upload_interval(text: str) -> timedelta:
    """Parse an ISO 8601 duration of at most four hours."""
    # Imported here, because `spec` does not need it.
    import isodate

    demand = "must be a duration of hours, minutes and seconds, such as PT5M or PT1H30M, and at most PT4H"
    # isodate also parses a bare T, and a sign in front.
    if text.endswith("T") or not text.startswith("P"):
        raise ValueError(demand)
    try:
        interval = isodate.parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(demand) from error
    # Months and years have no length in hours.
    if not isinstance(interval, timedelta) or interval > MAX_UPLOAD_INTERVAL:
        raise ValueError(demand)
    return interval


def parse_feature_flags(text: str) -> frozenset[str]:
    """Return the flags that are on. If a flag is given twice, the last one counts."""
    flags: dict[str, bool] = {}
    for given in filter(None, map(str.strip, text.split(","))):
        flag = given.removeprefix("no_")
        if flag not in FEATURE_FLAGS:
            known = ", ".join(FEATURE_FLAGS)
            raise ValueError(f"{given!r} is not a feature flag: correct or remove it; the feature flags are {known}")
        flags[flag] = flag == given
    return frozenset(flag for flag, on in flags.items() if on)


def parse_catalog_name(text: str) -> str:
    """Check that a column of the tables of an SQL catalog can hold the name."""
    if len(text) > LONGEST_NAME:
        raise ValueError(f"must not be longer than {LONGEST_NAME} characters")
    return text


def parse_bucket(text: str) -> str:
    """Check that the name of a bucket can be a part of a URI."""
    if not re.fullmatch(r"[^\x00-\x20\x7f#?@\[\]]*", text):
        raise ValueError("must be the name of a bucket, without spaces and without #, ?, @, [ and ]")
    return text


def parse_prefix(text: str) -> str:
    """Return the prefix without empty parts, . and .., which clients of stores refuse in names."""
    if re.search(CONTROL_CHARACTER, text):
        raise ValueError(WITHOUT_CONTROL)
    if "://" in text:
        raise ValueError(
            "must be the beginning of names in the bucket or the container, such as lake/flow, and no address"
        )
    return posixpath.normpath(f"/{text.strip('/')}").removeprefix("/")


def parse_directory(text: str) -> Path:
    """Return the absolute directory that a path or a file:// URI names."""
    path = text
    if re.search(CONTROL_CHARACTER, text):
        raise ValueError(WITHOUT_CONTROL)
    if not text.strip() or text.startswith("~"):  # only shells replace it
        raise ValueError("must be a directory, and not be blank or begin with ~")
    if text.startswith("file:"):
        path = text.removeprefix("file:").removeprefix("//localhost").removeprefix("//")
    if "://" in path or (path != text and not path.startswith("/")):
        raise ValueError("must be a directory of this machine: a path, or file:// and an absolute path")
    directory = os.path.abspath(path)
    # PyIceberg reads a location as a URI: it would write to the part before such a character, another directory.
    if "#" in directory or "?" in directory:
        raise ValueError("must be a directory without # or ? in its absolute path")
    return Path(directory)


def service_account(text: str) -> dict[str, str]:
    """Return the key of a service account, in the form that Google's console writes."""
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict) or not all(isinstance(key.get(name), str) for name in SERVICE_ACCOUNT):
        raise ValueError(
            "must be the JSON key of a service account, as Google's console writes it, with "
            f"{', '.join(SERVICE_ACCOUNT)}"
        )
    return dict(key)


def parse_service_account(text: str) -> Secret:
    """Check the JSON key of a service account, and return all of it as a secret."""
    service_account(text)
    return Secret(text)


def parse_word(text: str) -> str:
    """Return a text that is sent in a header of HTTP, without the white space around it: a copied text often ends with
    a line break."""
    word = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", word):
        raise ValueError("must be one line, without spaces and without letters that are not in ASCII")
    return word


def parse_region(text: str) -> str:
    """Return the code of a region. Stores that are not Amazon's have codes of their own."""
    region = text.strip()
    if not re.fullmatch(r"[0-9A-Za-z._-]+", region):
        raise ValueError("must be the code of a region, such as us-east-1: letters, digits and hyphens")
    return region


def parse_token(text: str) -> Secret:
    """Like `parse_word`, for a secret."""
    return Secret(parse_word(text))


def parse_bearer_token(text: str) -> Secret:
    """Like `parse_token`, for a token that is sent after the word Bearer."""
    if text.strip().lower().startswith("bearer "):
        raise ValueError("must be only the token, without the word Bearer in front of it")
    return parse_token(text)


def parse_secret(text: str) -> Secret:
    """Return a secret of any characters, without the white space around it."""
    return Secret(text.strip())


def parse_client_credential(text: str) -> Secret:
    """Check the ID and the secret of an OAuth2 client. White space around them does not count, as in other secrets."""
    client, colon, secret = (part.strip() for part in text.partition(":"))
    if colon and not (client and secret):
        raise ValueError("must be client_id:client_secret, or only the secret, without a colon in front")
    return Secret(f"{client}{colon}{secret}")


def parse_secret_access_key(text: str) -> Secret:
    """Return the secret of an AWS access key, without the white space around it, which AWS would not accept: a copied
    text often ends with a line break. An ID in its place is refused: errors would show the secret as an ID."""
    secret = text.strip()
    if re.fullmatch(ACCESS_KEY_ID, secret):
        raise ValueError("must be the secret of the access key, and not its ID: they may be exchanged")
    return Secret(secret)


def parse_account_key(text: str) -> Secret:
    """Check the access key of a storage account, which is base64. White space around it does not count."""
    from base64 import b64decode

    key = text.strip()
    try:
        b64decode(key, validate=True)
    except ValueError:
        raise ValueError("must be an access key of the storage account, as Azure's portal shows it") from None
    return Secret(key)


def parse_container(text: str) -> str:
    """Check the length of a container's name. Its pattern cannot count hyphens."""
    if len(text) not in CONTAINER_LENGTHS:
        raise ValueError(PATTERN_DEMANDS[AZURE_CONTAINER])
    return text


def parse_signing_secret(text: str) -> Secret:
    """Check a secret that signs messages, in the form of Standard Webhooks."""
    from base64 import b64decode

    demand = (
        f"must be {SIGNING_SECRET_PREFIX} followed by {SHORTEST_KEY} to {LONGEST_KEY} random bytes in base64, as "
        f'`echo "{SIGNING_SECRET_PREFIX}$(openssl rand -base64 32)"` prints it'
    )
    try:
        key = b64decode(text.removeprefix(SIGNING_SECRET_PREFIX), validate=True)
    except ValueError:
        raise ValueError(demand) from None
    if not text.startswith(SIGNING_SECRET_PREFIX) or not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise ValueError(demand)
    return Secret(text)


def refuse_variants(is_on: bool) -> bool:
    """Return False: no other value is accepted yet."""
    if is_on:
        raise ValueError("must be false: PyIceberg, which the connector uses, cannot read tables with variants yet")
    return False
