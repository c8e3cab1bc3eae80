"""Rules between properties. A schema can express them only in forms that Flow's UI does not show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from connector.config import credentials, storage
from connector.config.catalog import GLUE, HIVE, LOCAL, REST, S3_TABLES, SQL
from connector.config.catalog_properties import AUTH_TYPE, GOOGLE_AUTH, SIGNED, SIGNING_REGION
from connector.config.sync_schedule import parse_time_of_day
from connector.config.values import (
    DEFAULT_UPLOAD_INTERVAL,
    MACHINE_CREDENTIALS,
    NameCase,
    parse_feature_flags,
    parse_upload_interval,
)
from protocol.flow import Json

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """A demand that a config does not meet, and the path of the property."""

    path: Path
    demand: str

    def __str__(self) -> str:
        return f"/{'/'.join(self.path)}: {self.demand}"

    def touches(self, path: Path) -> bool:
        """Whether one of the two paths contains the other."""
        shorter = min(len(path), len(self.path))
        return path[:shorter] == self.path[:shorter]


def at(config: Json, *path: str) -> Json:
    """Return the value at this path of a config, or None."""
    for name in path:
        config = config.get(name) if isinstance(config, dict) else None
    return config


def chosen_catalog(config: Json) -> Json:
    """Return the type of the catalog. In a wrong config it can be anything."""
    return GLUE if at(config, "catalog") is None else at(config, "catalog", "catalog_type")


def broken_rules(config: Json) -> Iterator[Problem]:
    """Yield what is wrong between the properties of an endpoint config."""
    yield from _needs_of_catalog(config)
    yield from _needs_of_credentials(config)
    yield from _needs_of_temporary_keys(config)
    yield from _needs_of_signed_requests(config)
    yield from _needs_of_google_sign_in(config)
    yield from _needs_of_storage(config)
    yield from _needs_of_endpoints(config)
    yield from _needs_of_schedule(config)
    yield from _needs_of_names(config)


def broken_rules_of_binding(config: Json) -> Iterator[Problem]:
    """Yield what is wrong between the properties of a resource config."""
    if at(config, "partition_by") is not None and at(config, "partition_fields"):
        yield Problem(("partition_fields",), "must be removed: /partition_by is set, and both are the partition spec")


NEEDED_BY: Final[Mapping[str, Sequence[str]]] = {
    GLUE: ("credentials", "bucket", "region"),
    S3_TABLES: ("credentials",),
    SQL: ("credentials", "bucket", "region"),
    HIVE: ("credentials", "bucket", "region"),
}
UNLESS_OF_MACHINE: Final = f" unless the feature flag {MACHINE_CREDENTIALS} is on"
KEYS: Final = ("awsAccessKeyId", "awsSecretAccessKey")
OLDER_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")


def _needs_of_catalog(config: Json) -> Iterator[Problem]:
    catalog_type = chosen_catalog(config)
    if catalog_type in (SQL, HIVE) and at(config, "storage") is not None:
        return
    has_credentials = _has_other_credentials(config)
    needed = NEEDED_BY.get(catalog_type, ()) if isinstance(catalog_type, str) else ()
    for name in [name for name in needed if name != "bucket" or at(config, "storage") is None]:
        if not at(config, name) and not (name == "credentials" and has_credentials):
            otherwise = UNLESS_OF_MACHINE if name == "credentials" else ""
            yield Problem((name,), f"is required by {catalog_type}{otherwise}")


def _needs_of_credentials(config: Json) -> Iterator[Problem]:
    yield from _needs_of_role(config, "storage", "credentials")
    yield from _needs_of_role(config, "credentials")
    match at(config, "credentials", "auth_type"):
        case credentials.AWS_IAM:
            keys = [at(config, "credentials", name) for name in OLDER_KEYS]
            if not all(keys) and (any(keys) or not _allows_machine_credentials(config)):
                yield Problem(
                    ("credentials",),
                    "has no credentials: Flow's runtime adds them when it assumes the role. Outside of Flow, turn on "
                    f"the feature flag {MACHINE_CREDENTIALS}, or set auth_type to AWSAccessKey or AWSRole",
                )
        case None:
            yield from _needs_of_halves(config, (), OLDER_KEYS)


def _needs_of_role(config: Json, *path: str) -> Iterator[Problem]:
    if at(config, *path, "auth_type") != credentials.AWS_ROLE:
        return
    if _allows_machine_credentials(config):
        yield from _needs_of_halves(config, path, KEYS)
        return
    for name in KEYS:
        if not at(config, *path, name):
            yield Problem((*path, name), f"is required{UNLESS_OF_MACHINE}")


def _needs_of_halves(config: Json, path: Path, names: Sequence[str]) -> Iterator[Problem]:
    """Yield the half of an access key that is missing, if the other one is there."""
    for name, other in (names, names[::-1]):
        if at(config, *path, other) and not at(config, *path, name):
            yield Problem((*path, name), f"is required if {other} is set")


def _needs_of_temporary_keys(config: Json) -> Iterator[Problem]:
    for path in (("credentials",), ("storage", "credentials")):
        keys = at(config, *path)
        is_temporary = str(at(keys, "awsAccessKeyId")).startswith(credentials.TEMPORARY)
        if at(keys, "auth_type") == credentials.AWS_ACCESS_KEY and is_temporary and not at(keys, "awsSessionToken"):
            yield Problem(
                (*path, "awsSessionToken"),
                f"is required by temporary keys, whose IDs begin with {credentials.TEMPORARY}",
            )


def _needs_of_signed_requests(config: Json) -> Iterator[Problem]:
    properties = at(config, "catalog", "properties")
    if chosen_catalog(config) != REST or str(at(properties, SIGNED)).lower() != "true":
        return
    if not _has_other_credentials(config) and not at(config, "credentials"):
        yield Problem(("credentials",), f"is required by {SIGNED}{UNLESS_OF_MACHINE}")
    if not at(properties, SIGNING_REGION) and not at(config, "region"):
        yield Problem(("catalog", "properties", SIGNING_REGION), f"is required by {SIGNED} unless /region is set")


def _needs_of_google_sign_in(config: Json) -> Iterator[Problem]:
    catalog = at(config, "catalog")
    key, properties = ("catalog", "service_account_json"), at(catalog, "properties")
    if chosen_catalog(config) != REST or not (at(config, *key) or at(properties, AUTH_TYPE) == GOOGLE_AUTH):
        return
    others = [f"/catalog/{name}" for name in ("credential", "token") if at(catalog, name)]
    others += [SIGNED] if str(at(properties, SIGNED)).lower() == "true" else []
    if others:
        path = key if at(config, *key) else ("catalog", "properties", AUTH_TYPE)
        yield Problem(path, f"must be the only way to sign in: remove it, or remove {', '.join(others)}")
    if not at(config, *key) and not _allows_machine_credentials(config):
        yield Problem(key, f"is required by {AUTH_TYPE}{UNLESS_OF_MACHINE}")


# Catalogs that choose the store of their tables.
OWN_STORES: Final[Mapping[str, str]] = {
    GLUE: "keeps its tables in S3: in the bucket of /bucket, or in a storage of the type Amazon S3",
    S3_TABLES: "keeps its tables in its table bucket",
    LOCAL: "keeps its tables in its warehouse directory",
}
APPLICATION_SETTINGS: Final = ("tenant_id", "client_id", "client_secret")
S3_SETTINGS: Final = ("bucket", "prefix", "s3_endpoint")


def _needs_of_storage(config: Json) -> Iterator[Problem]:
    if not isinstance(at(config, "storage"), dict):
        return
    catalog_type = chosen_catalog(config)
    storage_type = at(config, "storage", "storage_type")
    has_own = isinstance(catalog_type, str) and catalog_type in OWN_STORES
    if has_own and (catalog_type, storage_type) != (GLUE, storage.S3):
        yield Problem(("storage",), f"must be removed: {catalog_type} {OWN_STORES[catalog_type]}")
        return
    for name in S3_SETTINGS:
        if at(config, name):
            yield Problem((name,), "is used only without /storage: remove it, or remove /storage")
    # A REST catalog can vend the credentials for the files of its tables.
    is_needed = catalog_type != REST and not _allows_machine_credentials(config)
    match storage_type:
        case storage.S3 if is_needed:
            if not (
                at(config, "storage", "credentials") or at(config, "credentials") or _has_other_credentials(config)
            ):
                yield Problem(("storage", "credentials"), "is required unless /credentials is set")
        case storage.GOOGLE if is_needed and not at(config, "storage", "service_account_json"):
            name = "service_account_json"
            yield Problem(("storage", name), f"is required{UNLESS_OF_MACHINE}")
        case storage.AZURE:
            yield from _needs_of_azure(config["storage"], is_needed=is_needed)


def _needs_of_endpoints(config: Json) -> Iterator[Problem]:
    """Some consoles show the address of a bucket, such as that of Cloudflare R2."""
    for path, bucket in (
        (("s3_endpoint",), at(config, "bucket")),
        (("storage", "endpoint"), at(config, "storage", "bucket")),
    ):
        _, _, directory = str(at(config, *path) or "").rpartition("://")[2].strip("/").partition("/")
        if bucket and directory.rpartition("/")[2] == bucket:
            yield Problem(path, "must not end with the bucket, which the connector appends to it")


def _needs_of_azure(storage: Json, *, is_needed: bool) -> Iterator[Problem]:
    application = [name for name in APPLICATION_SETTINGS if storage.get(name)]
    given = [name for name in ("account_key", "sas_token") if storage.get(name)] + application[:1]
    if is_needed and not given:
        yield Problem(
            ("storage",),
            "needs a way to sign in: set account_key, sas_token, or client_secret with tenant_id and client_id, or the "
            f"feature flag {MACHINE_CREDENTIALS}",
        )
    if len(given) > 1:
        yield Problem(
            ("storage",),
            "has more than one way to sign in: set only one of account_key, sas_token and client_secret",
        )
    for name in APPLICATION_SETTINGS:
        if application and name not in application:
            yield Problem(("storage", name), f"is required if {application[0]} is set")


FAST_SYNC: Final = ("timezone", "fastSyncStartTime", "fastSyncStopTime", "fastSyncEnabledDays")
NEEDED_BY_FAST_SYNC: Final = ("syncFrequency", "timezone", "fastSyncStartTime", "fastSyncStopTime")


def _needs_of_schedule(config: Json) -> Iterator[Problem]:
    schedule = at(config, "syncSchedule")
    given = [name for name in FAST_SYNC if at(schedule, name)]
    for name in NEEDED_BY_FAST_SYNC:
        if given and not at(schedule, name):
            yield Problem(("syncSchedule", name), f"is required if {given[0]} is set")
    if _is_same_time(at(schedule, "fastSyncStartTime"), at(schedule, "fastSyncStopTime")):
        yield Problem(("syncSchedule", "fastSyncStopTime"), "must not be the same time as fastSyncStartTime")
    if at(schedule, "syncFrequency") and _is_other_interval(at(config, "upload_interval")):
        yield Problem(
            ("upload_interval",), "must be removed: /syncSchedule is set, and both say when transactions are committed"
        )


def _is_same_time(start: Json, stop: Json) -> bool:
    try:
        return parse_time_of_day(start) == parse_time_of_day(stop)
    except (ValueError, OverflowError, AttributeError):  # not set, or another problem
        return False


def _is_other_interval(text: Json) -> bool:
    """Whether an upload interval is set, and is not the default, which Flow's form may fill in."""
    try:
        return bool(text) and parse_upload_interval(text) != DEFAULT_UPLOAD_INTERVAL
    except (ValueError, AttributeError):  # another problem
        return False


# Catalogs that keep names of namespaces and tables in lower case.
LOWER_CASE_ONLY: Final = (GLUE, S3_TABLES, HIVE)


def _needs_of_names(config: Json) -> Iterator[Problem]:
    catalog_type, case = chosen_catalog(config), at(config, "advanced", "table_identifier_case")
    if catalog_type in LOWER_CASE_ONLY and case not in (None, NameCase.LOWERCASE):
        yield Problem(
            ("advanced", "table_identifier_case"),
            f"must be {NameCase.LOWERCASE}: {catalog_type} keeps names of namespaces and tables in lower case",
        )


def _has_other_credentials(config: Json) -> bool:
    """Whether there are AWS credentials beside the property `credentials`."""
    return _allows_machine_credentials(config) or any(at(config, name) for name in OLDER_KEYS)


def _allows_machine_credentials(config: Json) -> bool:
    try:
        return MACHINE_CREDENTIALS in parse_feature_flags(at(config, "advanced", "feature_flags") or "")
    except (ValueError, AttributeError):  # another problem
        return False
