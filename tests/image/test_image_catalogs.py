"""A session in the image on catalogs and storage of every kind: what they need was not trimmed away."""

from pathlib import Path

import pytest

from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog
from fixtures.collection import NAMESPACE
from protocol.flow import Json
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.postgres import Postgres
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.sessions.containers import IMAGE, Image
from support.sessions.runtime import Runtime
from support.tables.local_tables import ids_of

pytestmark = [*IMAGE, pytest.mark.catalog]


@pytest.fixture
def on_rest(rest_on_s3: RestCatalogOnS3) -> Json:
    return on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(rest_on_s3.uri))


@pytest.fixture
def on_glue(glue_uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Json:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_uri)
    return on_s3(s3_server, s3_server.new_bucket(), NAMESPACE, glue())


@pytest.fixture
def on_postgres(postgres: Postgres, s3_server: S3Server) -> Json:
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    return on_s3(s3_server, s3_server.new_bucket(), NAMESPACE, catalog)


@pytest.mark.parametrize("place", ["on_rest", "on_glue", "on_postgres"])
def test_a_transaction_lands(
    image: Image, place: str, glue_uri: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    config = request.getfixturevalue(place)
    in_image = image.launch(network_mode="host")
    runtime = Runtime(tmp_path, config=config, environment={"AWS_ENDPOINT_URL_GLUE": glue_uri}, launch=in_image)
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    with open_catalog(parse(config, [])[0]) as catalog:
        assert ids_of(catalog, (NAMESPACE, "ledger")) == [1]
