"""Glue: whose keys it is asked with, and what its errors say."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from msgspec.structs import replace

from connector.config.catalog import GlueCatalog
from connector.config.credentials import MachineCredentials
from connector.host.errors import RetryableError, UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.model.properties import Properties
from connector.storage.store_properties import data_file_properties
from iceberg.catalog_configs import on_s3
from protocol.flow import Json
from support.servers.odd_servers import Server, answering
from support.snapshots import check_text


@contextmanager
def glue_answering(monkeypatch: pytest.MonkeyPatch, status: int, body: Json) -> Iterator[Server]:
    with answering(status, json.dumps(body)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
        yield server


def test_glue_is_opened_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with glue_answering(monkeypatch, 500, {}) as server, open_catalog(on_s3(GlueCatalog())) as catalog:
        assert catalog.name == "glue"
    assert server.requests == []


def test_the_machine_s_keys_are_used_where_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    endpoint = replace(on_s3(GlueCatalog()), credentials=MachineCredentials())
    with glue_answering(monkeypatch, 200, {"DatabaseList": []}) as server, open_catalog(endpoint) as catalog:
        assert catalog.list_namespaces() == []
    ((_, authorization, _),) = server.requests
    assert "Credential=of-the-machine/" in authorization
    assert data_file_properties(endpoint)["s3.access-key-id"] == "of-the-machine"


def test_a_machine_without_keys_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UserError) as error:
        data_file_properties(replace(on_s3(GlueCatalog()), credentials=MachineCredentials()))
    check_text("catalog_errors", "AWS: a machine without keys", str(error.value))


def test_tables_that_are_looked_at_side_by_side_know_glue_s_errors_by_the_same_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    make = ClientExceptionsFactory._create_client_exceptions

    def counted(*service: object) -> object:
        made.append(service)
        return make(*service)

    monkeypatch.setattr(ClientExceptionsFactory, "_create_client_exceptions", counted)
    missing = {"__type": "EntityNotFoundException", "Message": "Database shop not found"}
    with glue_answering(monkeypatch, 400, missing), open_catalog(on_s3(GlueCatalog())) as catalog:
        before_any_thread = len(made)
        assert not catalog.namespace_exists("shop")
    assert len(made) == before_any_thread == 1


@pytest.mark.parametrize(("glue_id", "sent"), [("", {}), ("123", {"CatalogId": "123"})])
def test_glue_is_asked_with_the_config_s_keys_for_its_account(
    monkeypatch: pytest.MonkeyPatch, glue_id: str, sent: Json
) -> None:
    endpoint = on_s3(GlueCatalog(glue_id))
    with glue_answering(monkeypatch, 200, {"DatabaseList": []}) as server, open_catalog(endpoint) as catalog:
        assert catalog.list_namespaces() == []
    ((_, authorization, body),) = server.requests
    assert "Credential=keyid/" in authorization
    assert "/us-east-1/glue/" in authorization
    assert json.loads(body) == sent


def test_what_glue_refuses_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = on_s3(GlueCatalog())
    answer = {"__type": "AccessDeniedException", "Message": "not you."}
    with (
        glue_answering(monkeypatch, 400, answer),
        open_catalog(endpoint) as catalog,
        pytest.raises(UserError) as raised,
        translate_errors(endpoint),
    ):
        catalog.list_namespaces()
    assert str(raised.value) == (
        "AWS Glue in us-east-1 forbids this (AccessDeniedException: not you). "
        "Allow it in the policy of these credentials, or set others in /credentials."
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="https://glue"), RetryableError),
        (ReadTimeoutError(endpoint_url="https://glue"), RetryableError),
        (ClientError({"Error": {"Code": "ThrottlingException", "Message": "slowly"}}, "GetTable"), RetryableError),
        (
            ClientError({"Error": {"Code": "502"}, "ResponseMetadata": {"HTTPStatusCode": 502}}, "GetTable"),
            RetryableError,
        ),
    ],
)
def test_what_botocore_gives_up_on_is_explained(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="AWS Glue in us-east-1 "), translate_errors(on_s3(GlueCatalog())):
        raise error


def test_glue_keeps_older_versions_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = on_s3(GlueCatalog(properties=Properties({"glue.skip-archive": "false", "s3.request-timeout": "5"})))
    with glue_answering(monkeypatch, 500, {}), open_catalog(endpoint) as catalog:
        assert (catalog.properties["glue.skip-archive"], catalog.properties["s3.request-timeout"]) == ("false", "5")
