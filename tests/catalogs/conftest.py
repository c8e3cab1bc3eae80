"""What tests of one catalog share. Each module has its own fixture `catalog`."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest
from pyiceberg.catalog import Catalog

from connector.iceberg.commits import retry_commits
from connector.model.table_identifier import TableIdentifier
from support.servers.fault_proxy import FaultProxy, fault_proxy
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.tables.local_tables import foreign_table


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit be attempted again at once."""
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", 0.001)


@pytest.fixture
def rest_proxy(rest_on_s3: RestCatalogOnS3) -> Iterator[FaultProxy]:
    """A proxy in front of the REST catalog that counts the requests of one test."""
    with fault_proxy(rest_on_s3.uri) as running:
        yield running


@pytest.fixture
def glue_proxy(glue_uri: str) -> Iterator[FaultProxy]:
    """A proxy in front of AWS Glue for one test."""
    with fault_proxy(glue_uri) as running:
        yield running


@pytest.fixture
def glue_client(glue_uri: str, s3_server: S3Server) -> Iterator[Any]:
    """Another user of AWS Glue, who speaks to it without the proxy."""
    keys = {"aws_access_key_id": "another", "aws_secret_access_key": "another", "region_name": s3_server.region}
    with closing(boto3.client("glue", endpoint_url=glue_uri, **keys)) as opened:
        yield opened


@pytest.fixture
def path(catalog: Catalog) -> TableIdentifier:
    """A new table without rows."""
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")
    foreign_table(catalog, path)
    return path
