"""What a config's storage demands of its other properties, and they of it."""

from collections.abc import Iterator, Mapping
from typing import Final

from connector.config import storage_schemas
from connector.config.catalog_schemas import GLUE, LOCAL, REST, S3_TABLES
from connector.config.problem import Problem, at
from connector.config.values import MACHINE_CREDENTIALS
from protocol.flow import Json

# Catalogs that keep their tables in stores of their own.
OWN_STORES: Final[Mapping[str, str]] = {
    GLUE: "keeps its tables in the S3 bucket of /bucket",
    S3_TABLES: "keeps its tables in its table bucket",
    LOCAL: "keeps its tables in its warehouse directory",
}
APPLICATION_SETTINGS: Final = ("tenant_id", "client_id", "client_secret")
S3_SETTINGS: Final = ("bucket", "prefix", "s3_endpoint")


def storage_problems(config: Json, catalog_type: Json, *, allows_machine_credentials: bool) -> Iterator[Problem]:
    if not isinstance(at(config, "storage"), dict):
        return
    if isinstance(catalog_type, str) and catalog_type in OWN_STORES:
        yield Problem(("storage",), f"must be left out: {catalog_type} {OWN_STORES[catalog_type]}")
        return
    for name in S3_SETTINGS:
        if at(config, name):
            yield Problem((name,), "is for data files in Amazon S3: leave it out beside /storage, or leave that out")
    # A REST catalog may hand out the keys for each table's files.
    is_needed = catalog_type != REST
    match at(config, "storage", "storage_type"):
        case storage_schemas.GOOGLE:
            yield from _google_problems(config["storage"], is_needed=is_needed and not allows_machine_credentials)
        case storage_schemas.AZURE:
            yield from _azure_problems(config["storage"], is_needed=is_needed)


def _google_problems(storage: Json, *, is_needed: bool) -> Iterator[Problem]:
    name = "service_account_json"
    if is_needed and not storage.get(name):
        yield Problem(("storage", name), f"is required without the feature flag {MACHINE_CREDENTIALS}")


def _azure_problems(storage: Json, *, is_needed: bool) -> Iterator[Problem]:
    application = [name for name in APPLICATION_SETTINGS if storage.get(name)]
    given = [name for name in ("account_key", "sas_token") if storage.get(name)] + application[:1]
    if is_needed and not given:
        yield Problem(
            ("storage",), "lacks a way to sign in: account_key, sas_token, or client_secret and what it needs"
        )
    if len(given) > 1:
        yield Problem(
            ("storage",),
            "has more than one way to sign in: account_key, sas_token and client_secret exclude each other",
        )
    for name in APPLICATION_SETTINGS:
        if application and name not in application:
            yield Problem(("storage", name), f"is required beside {application[0]}")
