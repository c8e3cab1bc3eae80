"""Servers that repeat everything that they were sent, in each of their refusals: nothing secret of it comes to
light."""

import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Properties

from connector.config.settings import parse
from connector.host import logs
from connector.host.errors import ConnectorError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Failed
from connector.model.state import WriterId
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from connector.storage.file_io import open_file_io
from connector.storage.storage_errors import translate_errors
from protocol import request
from protocol.flow import WHOLE_RANGE, Json, ValidateBinding
from support.bindings import ID, MATERIALIZATION, PATH, collection, materialization, materialization_binding
from support.rows.staged_files import stage
from support.servers.catalog_gateway import Sent
from support.servers.echoing_servers import (
    ISSUED,
    TOKENS,
    EchoingCatalog,
    echo,
    echoing_catalog,
    echoing_service,
    glue_error,
    s3_error,
)
from support.servers.endpoint_configs import glue, rest
from support.tables.local_tables import foreign_table
from support.tables.outcomes import try_commits

WRITER: Final = WriterId(MATERIALIZATION, "orders.v1", WHOLE_RANGE.key_range)
CREDENTIAL: Final = "planted-secret/of+the=robot"
HEADER: Final = "planted-in-a-header"
SESSION_TOKEN: Final = "planted-session-token/" + "0123456789abcdef" * 30
KEYS: Final = {
    "auth_type": "AWSIAM",
    "aws_region": "us-east-1",
    "aws_role_arn": "arn:aws:iam::123456789012:role/flow",
    "aws_access_key_id": "id",
    "aws_secret_access_key": "planted-secret-key",
    "aws_session_token": SESSION_TOKEN,
}


def on_rest(server: EchoingCatalog, *, has_token: bool = False) -> Json:
    sign_in = {"token": ISSUED} if has_token else {"credential": f"robot:{CREDENTIAL}"}
    catalog = {**rest(server.uri), **sign_in, "properties": {"header.X-Api-Key": HEADER}}
    return {"namespace": "shop", "catalog": catalog}


def validated(config: Json) -> object:
    binding = ValidateBinding({"table": "orders"}, collection(ID))
    return validate(request.Validate(MATERIALIZATION, config=config, bindings=(binding,)))


def applied(config: Json) -> object:
    return apply(request.Apply(materialization(config, materialization_binding(collection(ID)))))


def told(error: BaseException, *records: logging.LogRecord) -> str:
    """All that can be read of it, in the log of somebody who wants to read everything."""
    last = logging.LogRecord(
        "connector", logging.ERROR, "", 0, "%s", (error,), (type(error), error, error.__traceback__)
    )
    return "\n".join(kind().format(record) for kind in logs.FORMATTERS.values() for record in (*records, last))


def is_for_a_token(sent: Sent) -> bool:
    return sent.path == TOKENS


def is_for_the_config(sent: Sent) -> bool:
    return sent.path.startswith("/v1/config")


def is_for_a_namespace(sent: Sent) -> bool:
    return sent.path.startswith("/v1/namespaces")


@pytest.mark.parametrize("use", [validated, applied])
@pytest.mark.parametrize(
    ("refuses", "status"),
    [
        (is_for_a_token, HTTPStatus.UNAUTHORIZED),
        (is_for_the_config, HTTPStatus.FORBIDDEN),
        (is_for_a_namespace, HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_a_rest_catalog_repeats_is_not_told_when_a_task_is_published(
    use: Callable[[Json], object], refuses: Callable[[Sent], bool], status: HTTPStatus
) -> None:
    with echoing_catalog(refuses, status) as server, pytest.raises(ConnectorError) as raised:
        use(on_rest(server))
    assert "planted" in server.repeated[0]
    assert "***" in str(raised.value)
    assert "planted" not in told(raised.value)


@pytest.mark.parametrize(
    ("method", "status", "has_token"),
    [
        ("GET", HTTPStatus.FORBIDDEN, False),
        ("POST", HTTPStatus.FORBIDDEN, True),
        ("POST", HTTPStatus.CONFLICT, False),
        ("POST", HTTPStatus.BAD_GATEWAY, False),
    ],
)
def test_what_a_rest_catalog_repeats_is_not_told_when_it_refuses_a_commit(
    method: str,
    status: HTTPStatus,
    has_token: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)
    local = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    table = foreign_table(local, PATH)
    staged = stage(local, PATH, WRITER, 1)
    answer = {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json())}

    def refuses(sent: Sent) -> bool:
        return sent.method == method and "/tables/" in sent.path

    with echoing_catalog(refuses, status, answer) as server:
        config = parse(on_rest(server, has_token=has_token), [])[0]
        (failed,) = try_commits(open_catalog(config), [staged])
    assert isinstance(failed, Failed)
    assert "planted" in server.repeated[0]
    assert "***" in str(failed.error)
    assert "planted" not in told(failed.error, *caplog.records)


def test_keys_in_an_answer_that_does_not_fit_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)
    local = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    foreign_table(local, PATH)
    staged = stage(local, PATH, WRITER, 1)
    unfitting = {"config": {"s3.secret-access-key": "a key that was planted"}}
    with echoing_catalog(lambda _: False, HTTPStatus.OK, unfitting) as server:
        (failed,) = try_commits(open_catalog(parse(on_rest(server), [])[0]), [staged])
    assert isinstance(failed, Failed)
    assert "metadata: Field required" in str(failed.error)
    assert "planted" not in "\n".join([str(failed.error), *(record.getMessage() for record in caplog.records)])


def test_what_glue_repeats_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"namespace": "shop", "bucket": "lake", "region": "us-east-1", "credentials": KEYS, "catalog": glue()}
    with echoing_service(glue_error) as glue_uri, echoing_service(s3_error) as s3_uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_uri)
        with pytest.raises(ConnectorError) as raised:
            validated({**config, "s3_endpoint": s3_uri})
    assert str(raised.value).count("AccessDenied") == 2, "the bucket's and the catalog's"
    assert "planted" not in told(raised.value)


def write(properties: Properties) -> None:
    """As a task does, which knows no secret but the keys of files."""
    with (
        translate_errors("s3://lake/file"),
        open_file_io(properties).new_output("s3://lake/file").create(overwrite=True) as stream,
    ):
        stream.write(b"content")


def test_what_an_object_store_repeats_is_not_told_by_a_task() -> None:
    keys = {
        "s3.access-key-id": "id",
        "s3.secret-access-key": "planted-key",
        "s3.session-token": SESSION_TOKEN.replace("planted", "planted-for-a-task"),
    }
    addressed = {"s3.region": "us-east-1", "s3.force-virtual-addressing": "false"}
    with echoing_service(s3_error) as uri, pytest.raises(ConnectorError) as raised:
        write({**keys, **addressed, "s3.endpoint": uri})
    assert "***" in str(raised.value)
    assert "planted" not in str(raised.value)


def test_the_servers_repeat_what_is_secret() -> None:
    sent = Sent("GET", "/", {"X-Amz-Security-Token": SESSION_TOKEN}, b"client_secret=planted")
    assert echo(sent).count(SESSION_TOKEN) == 3
