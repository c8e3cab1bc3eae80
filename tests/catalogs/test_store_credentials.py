"""A bucket that other credentials open than the catalog, as in another account of AWS."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import pytest

from connector.checks import storage_probe
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.commits import commit
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import access_to
from connector.storage.store_properties import data_file_properties
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.amazon import ROLE
from support.servers.endpoint_configs import glue, rest
from support.servers.fault_proxy import GENUINE, Fault, FaultProxy, Request, fault_proxy
from support.servers.odd_servers import answering
from support.servers.postgres import Postgres
from support.servers.rest_catalog import RestCatalogServer
from support.servers.s3_server import Keys, S3Server
from support.tables.local_tables import ID_ONLY, ids_of

pytestmark = pytest.mark.catalog


NAMESPACE: Final = "of_two_accounts"
WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
OF_CATALOG: Final = Keys("AKIAOFTHECATALOG", "planted-secret-of-the-catalog")


def keys(user: Keys) -> Json:
    return {
        "auth_type": "AWSAccessKey",
        "awsAccessKeyId": user.access_key_id,
        "awsSecretAccessKey": user.secret_access_key,
    }


@pytest.fixture(autouse=True)
def glue_service(glue_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Glue, which only the catalog's keys open."""

    def judge(request: Request) -> Fault:
        is_known = f"Credential={OF_CATALOG.access_key_id}/" in request.authorization
        return GENUINE if is_known else Fault(0, HTTPStatus.FORBIDDEN)

    with fault_proxy(glue_uri) as running:
        running.choose = judge
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", running.uri)
        yield running


@pytest.fixture(params=["Glue", "SQL", "REST"])
def catalog(request: pytest.FixtureRequest) -> Json:
    match request.param:
        case "Glue":
            return glue()
        case "SQL":
            postgres: Postgres = request.getfixturevalue("postgres")
            return {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
        case _:
            server: RestCatalogServer = request.getfixturevalue("rest_on_s3")
            return rest(server.uri)


def config(s3_server: S3Server, catalog: Json, store: Keys, of_catalog: Keys = OF_CATALOG) -> Mapping[str, Json]:
    """The bucket is one that only the store's keys open."""
    return {
        "namespace": NAMESPACE,
        "region": s3_server.region,
        "credentials": keys(of_catalog),
        "catalog": catalog,
        "storage": {
            "storage_type": "Amazon S3",
            "bucket": s3_server.new_bucket(),
            "prefix": "lake/flow",
            "region": s3_server.region,
            "endpoint": s3_server.endpoint,
            "credentials": keys(store),
        },
    }


def append(endpoint: EndpointConfig, table: str) -> str:
    """Create a table and commit a row to it, and return the FileIO properties of its writers."""
    path = TableIdentifier(NAMESPACE, table)
    with translate_errors(endpoint), open_catalog(endpoint) as opened:
        opened.create_namespace_if_not_exists(NAMESPACE)
        opened.create_table(path, ID_ONLY, location=table_location(endpoint, path))
        commit.commit_all_or_raise(opened, [stage(opened, path, WRITER, 7)])
        assert ids_of(opened, path) == [7]
        return str(access_to(opened.load_table(path)).value)


def test_each_is_opened_by_its_own_keys(s3_server: S3Server, catalog: Json, request: pytest.FixtureRequest) -> None:
    endpoint = parse(config(s3_server, catalog, s3_server.root), [])[0]
    storage = endpoint.storage
    assert storage
    assert storage_probe.probe(endpoint, data_file_properties(endpoint)) == storage.location
    seen = append(endpoint, request.node.callspec.id.lower())
    assert OF_CATALOG.access_key_id not in seen
    assert OF_CATALOG.secret_access_key not in seen


def test_without_keys_of_its_own_the_bucket_has_the_catalog_s(s3_server: S3Server) -> None:
    given = config(s3_server, glue(), s3_server.root)
    endpoint = parse({**given, "storage": {**given["storage"], "credentials": None}}, [])[0]
    with pytest.raises(UserError, match=r"does not know the access key id .* Check it in /credentials"):
        storage_probe.probe(endpoint, data_file_properties(endpoint))


def test_wrong_keys_of_the_bucket_are_told_by_their_setting(s3_server: S3Server) -> None:
    wrong = Keys(s3_server.root.access_key_id, "planted-and-wrong")
    endpoint = parse(config(s3_server, glue(), wrong), [])[0]
    with pytest.raises(UserError, match="Check both in /storage/credentials") as raised:
        storage_probe.probe(endpoint, data_file_properties(endpoint))
    assert "planted" not in str(raised.value)


def test_a_role_of_the_bucket_that_cannot_be_assumed_is_told_by_its_setting(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(s3_server, glue(), s3_server.root)
    role = {**keys(s3_server.root), "auth_type": "AWSRole", "aws_role_arn": ROLE}
    endpoint = parse({**given, "storage": {**given["storage"], "credentials": role}}, [])[0]
    refusal = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    with answering(403, refusal) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.uri)
        with pytest.raises(
            UserError, match="The credentials in /storage/credentials must be correct and have the permission"
        ):
            data_file_properties(endpoint)


def test_the_keys_of_the_bucket_do_not_open_glue(s3_server: S3Server) -> None:
    endpoint = parse(config(s3_server, glue(), s3_server.root, s3_server.root), [])[0]
    with pytest.raises(UserError, match="AWS Glue in us-east-1"):
        append(endpoint, "never")
