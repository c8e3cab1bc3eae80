"""What a config's storage demands of its other properties, and they of it."""

from collections.abc import Iterator, Mapping
from typing import Final

from connector.catalog_schemas import GLUE, LOCAL, REST, S3_TABLES
from connector.config_problem import Problem, at
from connector.config_values import MACHINE_CREDENTIALS
from connector.storage_schemas import GOOGLE
from protocol.flow import Json

# Catalogs that keep their tables nowhere else.
OWN_STORES: Final[Mapping[str, str]] = {
    GLUE: "keeps its tables in the S3 bucket of /bucket",
    S3_TABLES: "keeps its tables in its table bucket",
    LOCAL: "keeps its tables in its warehouse directory",
}
OF_S3: Final = ("bucket", "prefix", "s3_endpoint")


def storage_problems(config: Json, catalog_type: Json, *, may_use_the_machine_s: bool) -> Iterator[Problem]:
    if not isinstance(at(config, "storage"), dict):
        return
    if isinstance(catalog_type, str) and catalog_type in OWN_STORES:
        yield Problem(("storage",), f"must be left out: {catalog_type} {OWN_STORES[catalog_type]}")
        return
    for name in OF_S3:
        if at(config, name):
            yield Problem((name,), "is for data files in Amazon S3: leave it out beside /storage, or leave that out")
    # A REST catalog may hand out tokens for each table.
    if catalog_type != REST and not may_use_the_machine_s:
        yield from _missing_sign_in(config)


def _missing_sign_in(config: Json) -> Iterator[Problem]:
    if at(config, "storage", "storage_type") == GOOGLE and not at(config, "storage", "service_account_json"):
        yield Problem(
            ("storage", "service_account_json"), f"is required without the feature flag {MACHINE_CREDENTIALS}"
        )
