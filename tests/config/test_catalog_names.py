"""Names of namespaces and tables that a catalog would refuse are refused by path, and those that it takes are taken."""

import uuid
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.exceptions import RESTError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.catalog import GLUE, HIVE, LOCAL, REST, S3_TABLES, SQL, RestCatalog, check_name
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from connector.iceberg.catalogs.rest import open_rest
from protocol.flow import Json
from support.servers.rest_catalog import RestCatalogServer
from support.tables.local_tables import local_catalog

SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))
LEGAL: Final = [
    "evil names",
    "select",
    "123",
    "-",
    "'`\"",
    "$[]{}()!?&=#;:@+*,|<>^~",
    "täble 表 \U0001f600",
    "n" * 255,
]


@pytest.mark.parametrize("catalog_type", [GLUE, REST, SQL, LOCAL])
@pytest.mark.parametrize("name", LEGAL)
def test_names_that_every_catalog_takes_are_legal(catalog_type: str, name: str) -> None:
    check_name(catalog_type, name)


@pytest.mark.parametrize(
    ("catalog_type", "name", "demand"),
    [
        (LOCAL, " \t ", "must not be blank"),
        (LOCAL, " orders", "must not begin or end with white space"),
        (REST, "orders ", "must not begin or end with white space"),
        (GLUE, "orders\xa0", "must not begin or end with white space"),
        (HIVE, "orders\n", "must not begin or end with white space"),
        (GLUE, "n" * 256, "must not be longer than 255 characters"),
        (GLUE, "two\nlines", "must not contain line breaks"),
        (SQL, "a\x7fb", "must not contain line breaks"),
        (REST, "a/b", "must not contain /, "),
        (REST, "a\\b", "must not contain /, "),
        (REST, "100%", "must not contain /, "),
        (HIVE, "with-hyphen", "must have at most 128 characters"),
        (HIVE, "größe", "must have at most 128 characters"),
        (HIVE, "a" * 129, "must have at most 128 characters"),
        (S3_TABLES, "with-hyphen", "must consist of letters, digits"),
        (S3_TABLES, "_hidden", "must consist of letters, digits"),
    ],
)
def test_a_name_that_a_catalog_refuses_is_illegal(catalog_type: str, name: str, demand: str) -> None:
    with pytest.raises(ValueError, match=demand):
        check_name(catalog_type, name)


def test_only_the_catalog_that_refuses_a_name_forbids_it() -> None:
    check_name(LOCAL, "100% a/b\\c")
    check_name(S3_TABLES, "Orders_2")
    check_name(HIVE, "_Orders_2")


def test_an_illegal_name_is_said_by_its_path_once() -> None:
    endpoint = {"namespace": "a\nb", "catalog": {"catalog_type": LOCAL}}
    resources: list[Json] = [{"table": "n" * 300}, {"table": "a.b\n"}, {"table": "t", "namespace": " "}, {"table": 5}]
    with pytest.raises(InvalidConfigError) as raised:
        parse(endpoint, resources)
    assert str(raised.value).splitlines() == [
        "/namespace: must not contain line breaks, tabs or other control characters",
        "bindings[0] /table: must not be longer than 255 characters",
        "bindings[1] /table: must not contain a dot",
        "bindings[2] /namespace: must not be blank",
        "bindings[3] /table: must be a string",
    ]


@pytest.mark.parametrize("name", LEGAL)
def test_a_local_catalog_takes_every_legal_name(tmp_path: Path, name: str) -> None:
    with local_catalog(tmp_path) as catalog:
        catalog.create_namespace("names")
        catalog.create_table(("names", name), SCHEMA, location=f"file://{tmp_path}/t")
        assert catalog.load_table(("names", name)).name() == ("names", name)


@pytest.mark.catalog
@pytest.mark.parametrize("name", LEGAL)
def test_a_real_rest_catalog_takes_every_legal_name(rest_catalog: RestCatalogServer, name: str) -> None:
    namespace = f"names_{uuid.uuid4().hex}"
    with open_rest(RestCatalog(rest_catalog.uri, "lake"), {}) as catalog:
        catalog.create_namespace(namespace)
        catalog.create_table((namespace, name), SCHEMA, location=f"file://{rest_catalog.warehouse}/{namespace}")
        assert catalog.load_table((namespace, name)).name() == (namespace, name)


@pytest.mark.catalog
@pytest.mark.parametrize("character", ["/", "\\", "%", "\n", "\x7f"])
def test_a_real_rest_catalog_refuses_what_is_illegal(rest_catalog: RestCatalogServer, character: str) -> None:
    with open_rest(RestCatalog(rest_catalog.uri, "lake"), {}) as catalog, pytest.raises(RESTError):
        catalog.load_table(("names", f"a{character}b"))
