"""Of every catalog and every store, what can be wrong with a config is told: each in a text that a test has seen
raised."""

import json
from collections.abc import Mapping
from typing import Final

import pytest

from connector.config.catalog import GLUE, HIVE, LOCAL, REST, S3_TABLES, SQL
from connector.config.endpoint_config import ENDPOINT_SCHEMA
from support.repository import TESTS

SNAPSHOTS: Final = TESTS / "snapshots"
NONE: Final = ""  # there is no such thing

# By what is wrong and where: the name of the text.
CATALOGS: Final[Mapping[str, Mapping[str, str]]] = {
    "cannot be reached": {
        GLUE: "Glue: nobody listens",
        S3_TABLES: "Amazon S3 Tables: nobody listens",
        REST: "REST: nobody listens",
        SQL: "SQL: nobody listens",
        HIVE: "Hive: nobody listens",
        LOCAL: "Local: locked",
    },
    "wrong credentials": {
        GLUE: "Glue: wrong secret",
        S3_TABLES: "Amazon S3 Tables: wrong secret",
        REST: "REST: credential refused",
        SQL: "SQL: wrong password",
        HIVE: NONE,
        LOCAL: NONE,
    },
    "no permission": {
        GLUE: "Glue: forbidden",
        S3_TABLES: "Amazon S3 Tables: forbidden",
        REST: "REST: forbidden",
        SQL: "SQL: may only read",
        HIVE: "Hive: forbidden",
        LOCAL: "Local: no directory",
    },
    "no such warehouse": {
        GLUE: "Glue: any other refusal",  # of its glue_id
        S3_TABLES: "Amazon S3 Tables: no such table bucket",
        REST: "REST: no such warehouse",
        SQL: "SQL: no such database",
        HIVE: NONE,  # what it calls so is where tables are that say nothing of it
        LOCAL: "Local: no directory",
    },
}
STORES: Final[Mapping[str, Mapping[str, str]]] = {
    "no such bucket": {"storage": "no such bucket", "google": "no such bucket", "azure": "no such container"},
    "wrong credentials": {"storage": "wrong secret", "google": "another's key", "azure": "another's key"},
    "no permission to write": {"storage": "may only read", "google": "may not write", "azure": "may only read"},
    "cannot be reached": {"storage": "nobody listens", "google": "nobody listens", "azure": "nobody listens"},
    "wrong region": {"storage": "wrong region", "google": NONE, "azure": NONE},
}


def texts(of: str) -> Mapping[str, list[str]]:
    recorded: Mapping[str, list[str]] = json.loads((SNAPSHOTS / f"{of}_errors.json").read_text())
    return recorded


@pytest.mark.parametrize("trouble", CATALOGS)
def test_every_catalog_tells_of_it_and_what_to_check(trouble: str) -> None:
    known = {each["properties"]["catalog_type"]["const"] for each in ENDPOINT_SCHEMA["properties"]["catalog"]["oneOf"]}
    assert CATALOGS[trouble].keys() == known
    recorded = texts("catalog")
    assert [name for name in CATALOGS[trouble].values() if name and name not in recorded] == []


@pytest.mark.parametrize("trouble", STORES)
def test_every_store_tells_of_it_and_what_to_check(trouble: str) -> None:
    assert [(of, name) for of, name in STORES[trouble].items() if name and name not in texts(of)] == []
