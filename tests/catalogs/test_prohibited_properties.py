"""A REST catalog that prohibits some table properties, in the words of Databricks' Unity Catalog."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from connector.evolution.property_changes import DEFAULT_PROPERTIES
from connector.model.table_identifier import TableIdentifier
from fixtures.collection import NAMESPACE
from protocol.flow import Json
from support.servers.catalog_gateway import Sent
from support.servers.endpoint_configs import on_s3, rest
from support.servers.refusing_catalog import Refusing, refusing
from support.servers.rest_catalog import RestCatalogOnS3
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

COLLECTION: Final = replace(LEDGER, table="with_prohibited_properties")
CODEC: Final = "write.parquet.compression-codec"
PROHIBITED: Final = (CODEC, "write.parquet.page-size-bytes", "schema.name-mapping.default")
WORDS: Final = "Malformed request: INVALID_PARAMETER_VALUE: Table properties contain prohibited keys: {}"


def find_prohibited(asked: Json) -> set[str]:
    """The properties of a request that the catalog prohibits, whether a table is created with them or gets them."""
    updates = [update["updates"] for update in asked.get("updates", []) if update["action"] == "set-properties"]
    return {name for some in (asked.get("properties", {}), *updates) for name in some} & set(PROHIBITED)


def refuse_prohibited(sent: Sent, asked: Json) -> tuple[HTTPStatus, str] | None:
    if sent.method == "POST" and "/tables" in sent.path and (prohibited := find_prohibited(asked)):
        return HTTPStatus.BAD_REQUEST, WORDS.format(", ".join(sorted(prohibited)))
    return None


@pytest.fixture
def gateway(rest_on_s3: RestCatalogOnS3) -> Iterator[tuple[str, Refusing]]:
    with refusing(rest_on_s3.uri, refuse_prohibited) as running:
        yield running


def test_a_table_is_created_without_default_properties_that_its_catalog_prohibits(
    gateway: tuple[str, Refusing], rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    uri, prohibiting = gateway
    config = on_s3(rest_on_s3.s3, rest_on_s3.s3.new_bucket(), NAMESPACE, rest(uri))
    runtime = Runtime(tmp_path, [COLLECTION], config)
    with runtime.start(publish=True) as session:
        session.opened()
        session.acknowledge()
        session.transaction({"id": 1, "note": "allowed"})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert [find_prohibited(json.loads(sent.body)) for sent in prohibiting.refused] == [{CODEC}]
    with rest_on_s3.client() as reader:
        table = reader.load_table(TableIdentifier(NAMESPACE, COLLECTION.table))
        assert table.scan().to_arrow()["id"].to_pylist() == [1]
        kept = {name: value for name, value in DEFAULT_PROPERTIES.items() if name != CODEC}
        assert kept.items() <= table.properties.items()
    # A property of the user's config is not left out, whether a table has to be changed or created for it.
    # The codec has the value that tables have by default.
    page_size = "write.parquet.page-size-bytes"
    for bound, name, value in (
        (COLLECTION.table, page_size, "1000000"),
        ("never_created", page_size, "1000000"),
        ("never_created", CODEC, DEFAULT_PROPERTIES[CODEC]),
    ):
        runtime.change([replace(COLLECTION, table=bound, settings={"additional_table_properties": {name: value}})])
        failed = runtime.apply_and_fail()
        assert failed.status == 1
        assert "does not allow table properties that the config sets" in failed.log
        assert name in failed.log
    with rest_on_s3.client() as reader:
        assert not reader.table_exists(TableIdentifier(NAMESPACE, "never_created"))
