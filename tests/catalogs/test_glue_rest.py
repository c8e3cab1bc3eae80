"""AWS Glue's REST endpoint is a REST catalog to which every request is signed, for Glue."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.catalogs.table_optimizers import DEFAULT_DAYS, find_orphan_days, is_compacted_by_service
from connector.iceberg.commits import commit
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.endpoint_configs import on_s3, rest
from support.servers.glue_rest import ACCOUNT, GlueRest, glue_rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog


WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
ID: Final = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)


@pytest.fixture
def gateway(rest_on_s3: RestCatalogOnS3) -> Iterator[GlueRest]:
    with glue_rest(rest_on_s3.uri, rest_on_s3.s3.root) as running:
        yield running


@pytest.fixture
def config(gateway: GlueRest, rest_on_s3: RestCatalogOnS3) -> Json:
    signing = {"rest.sigv4-enabled": "true", "rest.signing-name": "glue"}
    catalog = {**rest(f"{gateway.uri}/iceberg"), "warehouse": ACCOUNT, "properties": signing}
    return on_s3(rest_on_s3.s3, rest_on_s3.bucket, f"shop_{uuid.uuid4().hex}", catalog)


def fit(catalog: Catalog, endpoint: EndpointConfig, backfill: int) -> Sequence[TableChange]:
    path = TableIdentifier(endpoint.namespace, "orders")
    target = Target(path, Owner("acme/warehouse", f"orders.v{backfill}"), (ID,), {}, replaces=backfill > 0)
    return evolve(catalog, path, table_location(endpoint, path), partial(plan_changes, target=target), alterer())


def test_a_table_is_created_in_the_bucket_filled_and_replaced(config: Json) -> None:
    endpoint = parse(config, [])[0]
    path = TableIdentifier(endpoint.namespace, "orders")
    with open_catalog(endpoint) as catalog:
        fit(catalog, endpoint, backfill=0)
        commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, 1, 2)])
        assert catalog.load_table(path).location().startswith(f"s3://{endpoint.bucket}/{endpoint.prefix}/")
        assert ids_of(catalog, path) == [1, 2]
        fit(catalog, endpoint, backfill=1)
        assert ids_of(catalog, path) == [1, 2], "until the first commit"
        commit.commit_all_or_raise(catalog, [stage(catalog, path, replace(WRITER, state_key="orders.v1"), 3)])
        assert ids_of(catalog, path) == [3]


def test_glue_is_asked_for_the_optimizers_of_a_table(config: Json, gateway: GlueRest) -> None:
    endpoint = parse(config, [])[0]
    path = TableIdentifier(endpoint.namespace, "orders")
    with open_catalog(endpoint) as catalog:
        fit(catalog, endpoint, backfill=0)
        table = catalog.load_table(path)
        assert not is_compacted_by_service(table)
        gateway.optimizers[*path, "compaction"] = {"enabled": True}
        gateway.optimizers[*path, "orphan_file_deletion"] = {"enabled": True}
        assert is_compacted_by_service(table)
        assert find_orphan_days(table) == DEFAULT_DAYS
        gateway.optimizers[*path, "compaction"] = {"enabled": False}
        assert not is_compacted_by_service(table)


def test_a_signature_for_another_service_is_refused(config: Json) -> None:
    config["catalog"]["properties"]["rest.signing-name"] = "s3tables"
    with pytest.raises(
        UserError, match=r"secret access key does not belong to the .* The request signature does not match"
    ):
        open_catalog(parse(config, [])[0])
