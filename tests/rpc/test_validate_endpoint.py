"""Validate finds out whether storage and catalog can be used, and says all that is wrong at once."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from botocore.config import Config
from hive_metastore.ttypes import MetaException

import connector.iceberg.catalogs.glue
from connector.config.catalog import HIVE, LOCAL, REST, S3_TABLES
from connector.config.settings import parse
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.iceberg.catalogs import retry_after
from connector.iceberg.catalogs.opening import open_catalog
from connector.rpc.validate import validate
from protocol import request, response
from protocol.flow import Json, ValidateBinding
from support.bindings import ID, MATERIALIZATION, collection, projection
from support.servers.endpoint_configs import aws_keys, glue, on_s3, rest
from support.servers.fault_proxy import GENUINE
from support.servers.metastore_proxy import metastore_proxy
from support.servers.odd_servers import answering, silent
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address
from support.snapshots import check_text

ORDERS: Final = collection(ID)


def validated(config: Json, *bindings: ValidateBinding) -> tuple[response.ValidatedBinding, ...]:
    return validate(request.Validate(MATERIALIZATION, config=config, bindings=bindings)).bindings


def refused(config: Json, *bindings: ValidateBinding, kind: type[ConnectorError] = UserError) -> str:
    with pytest.raises(ConnectorError) as raised:
        validated(config, *bindings)
    assert type(raised.value) is kind
    assert "planted" not in str(raised.value)
    return str(raised.value)


def binding(table: str = "orders") -> ValidateBinding:
    return ValidateBinding({"table": table}, ORDERS)


def rest_error(kind: str, message: str) -> str:
    return json.dumps({"error": {"type": kind, "message": message, "code": 400}})


def sts_error(kind: str, message: str) -> str:
    return f"<ErrorResponse><Error><Code>{kind}</Code><Message>{message}</Message></Error></ErrorResponse>"


def aws_error(kind: str, message: str) -> str:
    return json.dumps({"__type": kind, "message": message})


# Everything at once


@pytest.mark.parametrize("catalog", [REST, LOCAL])
def test_what_is_wrong_with_storage_catalog_and_bindings_is_one_error(
    s3_server: S3Server, tmp_path: Path, catalog: str
) -> None:
    nobody = f"http://{free_address()}"
    (tmp_path / "warehouse").touch()
    config = on_s3(s3_server, "no-such-bucket", "shop", {**rest(nobody), "credential": "robot:planted"})
    if catalog == LOCAL:
        config["catalog"] = {"catalog_type": LOCAL, "warehouse": str(tmp_path / "warehouse")}
    nullable = collection(projection("id", "integer", "null"), name="acme/nullable")
    lines = refused(
        config,
        ValidateBinding({"table": "a.b", "delta_updates": 1}, ORDERS),
        ValidateBinding({"table": "nullable"}, nullable),
        ValidateBinding({"table": "same"}, ORDERS),
        ValidateBinding({"table": "SAME"}, ORDERS),
    ).splitlines()
    place = {
        REST: [
            "s3://no-such-bucket/lake/flow: there is no such bucket",
            f"the REST catalog at {nobody} cannot be signed in to now: the OAuth2 server at {nobody}/",
        ],
        LOCAL: [f"the warehouse directory {tmp_path}/warehouse of the Local catalog cannot be used"],
    }[catalog]
    expected = [
        *place,
        "bindings[0] /table: must not contain a dot",
        "bindings[0] /delta_updates: must be true or false",
        "bindings[2] (acme/orders) and bindings[3] (acme/orders) have the same table shop.same",
        "bindings[1] (acme/nullable): field 'id' at /id is part of the key and may be null",
    ]
    assert [line for line, start in zip(lines, expected, strict=True) if not line.startswith(start)] == []


def test_a_catalog_that_refuses_everything_says_so_once_however_many_bindings_there_are(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(400, aws_error("AccessDeniedException", "not you")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
        config = on_s3(s3_server, bucket, "shop", glue())
        assert len(refused(config, *(binding(f"t{number}") for number in range(9))).splitlines()) == 1
        assert len(server.requests) == 1


def test_storage_is_tried_once_however_many_bindings_there_are(s3_server: S3Server) -> None:
    with answering(400, "<Error><Code>InvalidRequest</Code></Error>") as store, answering(200, "{}") as catalog:
        config = {**on_s3(s3_server, "lake", "shop", rest(catalog.uri)), "s3_endpoint": store.uri}
        refused(config, *(binding(f"t{number}") for number in range(9)))
        assert len(store.requests) == 1


# What a catalog may answer


def rest_at(uri: str) -> Json:
    return {**rest(uri), "token": "planted-token"}


REST_ANSWERS: Final[Mapping[str, tuple[int, str, type[ConnectorError]]]] = {
    "a web server": (200, "<html>welcome</html>", UserError),
    "no catalog there": (404, "<html>not found</html>", UserError),
    "no such warehouse": (404, rest_error("NoSuchWarehouseException", "Warehouse lake does not exist"), UserError),
    "token refused": (401, rest_error("NotAuthorizedException", "planted-token is no token"), UserError),
    "forbidden": (403, rest_error("ForbiddenException", "planted-token may not do this"), UserError),
    "forbidden without a text": (403, "", UserError),
    "credentials not made": (
        422,
        rest_error(
            "UnprocessableEntityException",
            "Failed to get subscoped credentials: Access Denied. (Service: Sts, Status Code: 403)",
        ),
        RetryableError,
    ),
    "no credentials to vend": (
        400,
        rest_error(
            "IllegalArgumentException",
            "Credential vending was requested for table shop.orders, but no credentials are available",
        ),
        UserError,
    ),
    "location not allowed": (
        403,
        rest_error(
            "ForbiddenException",
            "Invalid locations '[s3://acme-lake-eu-central-1/flow/shop/orders_0123456789abcdef]' for identifier "
            "'shop.orders': s3://acme-lake-eu-central-1/flow/shop/orders_0123456789abcdef is not in the list of "
            "allowed locations: [s3://acme-lake-eu-central-1/warehouses/production/analytics, "
            "s3://acme-lake-eu-central-1/warehouses/production/finance, s3://acme-lake-eu-central-1/warehouses/staging]",
        ),
        UserError,
    ),
    "location taken": (
        403,
        rest_error(
            "ForbiddenException",
            "Unable to create table at location 's3://lake/shop/orders' because it conflicts with existing table or "
            "namespace at location 's3://lake/shop/orders'",
        ),
        UserError,
    ),
    "location with files": (
        400,
        rest_error(
            "InvalidLocation",
            "Invalid location `s3://lake/shop/orders`: Unexpected files in location, tabular locations have to be "
            "empty",
        ),
        UserError,
    ),
    "location of another table": (
        400,
        rest_error("LocationAlreadyTaken", "Location is already taken by another table or view"),
        UserError,
    ),
    "locations chosen by Horizon": (
        400,
        rest_error("BadRequestException", "Malformed request: Setting table location is not allowed"),
        UserError,
    ),
    "locations chosen by BigLake": (
        400,
        rest_error(
            "BadRequestException",
            "Malformed request: Table location 'gs://lake/shop/orders' does not match the expected path",
        ),
        UserError,
    ),
    "location missing": (
        400,
        rest_error("InvalidInputException", "Location information cannot be null while creating an iceberg table"),
        UserError,
    ),
    "properties not supported": (
        409,
        rest_error("FailedToSetProperties", "Properties contain unsupported property: 'write.data.path'"),
        UserError,
    ),
    "properties not allowed": (
        400,
        rest_error(
            "BadRequestException",
            "Malformed request: INVALID_PARAMETER_VALUE: Table properties contain prohibited keys: write.parquet.x",
        ),
        UserError,
    ),
    "broken": (500, rest_error("RuntimeException", "database is down"), RetryableError),
    "busy": (503, "", RetryableError),
    "too many requests": (429, rest_error("SomeException", "slowly"), RetryableError),
    "no tables": (200, '{"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]}', UserError),
}


@pytest.mark.parametrize("name", REST_ANSWERS)
def test_what_a_rest_catalog_answers_is_explained_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(retry_after, "PAUSES", (0.0,))
    status, body, kind = REST_ANSWERS[name]
    with answering(status, body) as server:
        text = refused(on_s3(s3_server, bucket, "shop", rest_at(server.uri)), binding(), kind=kind)
    check_text("catalog_errors", f"REST: {name}", text, {server.uri: "URI"})


METASTORE_ANSWERS: Final[Mapping[str, tuple[str, type[ConnectorError]]]] = {
    "broken": ("Got exception: java.sql.SQLException database is down", RetryableError),
    "forbidden": ("Got exception: AccessControlException Permission denied: user=nobody", UserError),
    "no client for the store": (
        'Got exception: UnsupportedFileSystemException No FileSystem for scheme "s3"',
        UserError,
    ),
}


@pytest.mark.parametrize("name", METASTORE_ANSWERS)
def test_what_a_hive_metastore_answers_is_explained_at_validate(s3_server: S3Server, bucket: str, name: str) -> None:
    message, kind = METASTORE_ANSWERS[name]

    def complain() -> None:
        raise MetaException(message)

    with metastore_proxy("thrift://nowhere") as server:
        server.inject(lambda _: True, GENUINE, before=complain)
        config = on_s3(s3_server, bucket, "shop", {"catalog_type": HIVE, "uri": server.uri})
        text = refused(config, binding(), kind=kind)
    check_text("catalog_errors", f"Hive: {name}", text, {server.uri: "URI"})


def test_a_hive_metastore_that_is_down_is_named_at_validate(s3_server: S3Server, bucket: str) -> None:
    host, port = free_address().split(":")
    config = on_s3(s3_server, bucket, "shop", {"catalog_type": HIVE, "uri": f"thrift://{host}:{port}"})
    text = refused(config, binding(), kind=RetryableError)
    check_text("catalog_errors", "Hive: nobody listens", text, {port: "PORT"})


TOKEN_ANSWERS: Final[Mapping[str, tuple[int, str, type[ConnectorError]]]] = {
    "credential refused": (401, '{"error": "invalid_client", "error_description": "planted-word is wrong"}', UserError),
    "no token server": (404, "<html>not found</html>", UserError),
    "token server broken": (500, "<html>broken</html>", RetryableError),
    "token server busy": (503, '{"error": "temporarily_unavailable"}', RetryableError),
}


@pytest.mark.parametrize("name", TOKEN_ANSWERS)
def test_what_a_token_server_answers_is_explained_at_validate(s3_server: S3Server, bucket: str, name: str) -> None:
    status, body, kind = TOKEN_ANSWERS[name]
    with answering(status, body) as server:
        catalog = {**rest(server.uri), "credential": "robot:planted-word"}
        text = refused(on_s3(s3_server, bucket, "shop", catalog), binding(), kind=kind)
    check_text("catalog_errors", f"REST: {name}", text, {server.uri: "URI"})


def test_a_token_server_that_cannot_be_reached_is_named_at_validate(s3_server: S3Server, bucket: str) -> None:
    nobody = f"http://{free_address()}"
    with answering(200, "{}") as server:
        catalog = {**rest(server.uri), "credential": "robot:planted-word", "oauth2_server_uri": nobody}
        text = refused(on_s3(s3_server, bucket, "shop", catalog), binding(), kind=RetryableError)
    check_text("catalog_errors", "REST: token server not reached", text, {server.uri: "URI", nobody: "TOKENS"})


def test_a_token_server_without_the_https_that_is_asked_of_it_is_named_at_validate(
    s3_server: S3Server, bucket: str
) -> None:
    with answering(200, "") as server:
        uri = server.uri.replace("http:", "https:")
        catalog = {**rest(server.uri), "credential": "robot:planted-word", "oauth2_server_uri": uri}
        text = refused(on_s3(s3_server, bucket, "shop", catalog), binding())
    check_text("catalog_errors", "REST: token server without https", text, {server.uri: "URI", uri: "TOKENS"})


REST_ADDRESSES: Final[Mapping[str, tuple[Callable[[], str], type[ConnectorError]]]] = {
    "nobody listens": (lambda: f"http://{free_address()}", RetryableError),
    "no such host": (lambda: "http://no-such-host.invalid/catalog", RetryableError),
}


@pytest.mark.parametrize("name", REST_ADDRESSES)
def test_a_rest_catalog_that_cannot_be_reached_is_named_at_validate(
    s3_server: S3Server, bucket: str, name: str
) -> None:
    address, kind = REST_ADDRESSES[name]
    uri = address()
    text = refused(on_s3(s3_server, bucket, "shop", rest_at(uri)), binding(), kind=kind)
    check_text("catalog_errors", f"REST: {name}", text, {uri: "URI"})


def test_a_rest_catalog_without_the_https_that_is_asked_of_it_is_named_at_validate(
    s3_server: S3Server, bucket: str
) -> None:
    with answering(200, "") as server:
        uri = server.uri.replace("http:", "https:")
        text = refused(on_s3(s3_server, bucket, "shop", rest_at(uri)), binding())
    check_text("catalog_errors", "REST: no https", text, {uri: "URI"})


GLUE_ANSWERS: Final[Mapping[str, tuple[int, str, type[ConnectorError]]]] = {
    "unknown key": (400, aws_error("UnrecognizedClientException", "The security token is invalid."), UserError),
    "wrong secret": (400, aws_error("InvalidSignatureException", "The request signature does not match."), UserError),
    "clock": (
        400,
        aws_error(
            "InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z"
        ),
        UserError,
    ),
    "late session": (400, aws_error("ExpiredTokenException", "The security token has expired"), UserError),
    "forbidden": (400, aws_error("AccessDeniedException", "Not authorized to perform: glue:GetDatabase"), UserError),
    "any other refusal": (400, aws_error("InvalidInputException", "Catalog id is not an account"), UserError),
    "busy": (400, aws_error("ThrottlingException", "Rate exceeded"), RetryableError),
    "a page": (500, "<!doctype html>\n<title>500 Internal Server Error</title>", RetryableError),
}


@pytest.mark.parametrize("name", GLUE_ANSWERS)
def test_what_glue_answers_is_explained_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    status, body, kind = GLUE_ANSWERS[name]
    with answering(status, body) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
        text = refused(on_s3(s3_server, bucket, "shop", glue()), binding(), kind=kind)
    check_text("catalog_errors", f"Glue: {name}", text)


def test_a_glue_that_cannot_be_reached_is_named_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", f"http://{free_address()}")
    text = refused(on_s3(s3_server, bucket, "shop", glue()), binding(), kind=RetryableError)
    check_text("catalog_errors", "Glue: nobody listens", text)


def test_a_glue_that_never_answers_is_not_waited_for(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = Config(read_timeout=0.2, retries={"total_max_attempts": 1})
    monkeypatch.setattr(connector.iceberg.catalogs.glue, "CLIENT_CONFIG", impatient)
    with silent() as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", uri)
        text = refused(on_s3(s3_server, bucket, "shop", glue()), binding(), kind=RetryableError)
    check_text("catalog_errors", "Glue: silence", text)


def test_a_glue_without_a_certificate_is_named_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(200, "") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri.replace("http:", "https:"))
        text = refused(on_s3(s3_server, bucket, "shop", glue()), binding())
    check_text("catalog_errors", "Glue: no https", text)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_named_for_glue(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    authority = tmp_path / "authority.pem"
    if content:
        authority.write_text(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    with answering(200, "") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri.replace("http:", "https:"))
        text = refused(on_s3(s3_server, bucket, "shop", glue()), binding())
    name = "a file without certificates" if content else "a file of certificates that is missing"
    text = re.sub(r" \(_ssl.*?\)", "", text).replace(server.uri.partition("//")[2], "GLUE")
    check_text("catalog_errors", f"Glue: {name}", text)


def test_a_region_that_is_none_is_said_by_storage_and_glue(s3_server: S3Server, bucket: str) -> None:
    text = refused({**on_s3(s3_server, bucket, "shop", glue()), "region": "eu_west_1"}, binding())
    check_text("catalog_errors", "Glue: no region's name", text, {bucket: "BUCKET"})


def gateway_error(message: str) -> str:
    """As AWS says it before the catalog itself gets the request."""
    return json.dumps({"message": message})


WRONG_SIGNATURE: Final = gateway_error(
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)
S3_TABLES_ANSWERS: Final[Mapping[str, tuple[int, str, type[ConnectorError]]]] = {
    "no such table bucket": (404, rest_error("NotFoundException", "The specified bucket does not exist."), UserError),
    "forbidden": (
        403,
        rest_error("ForbiddenException", "User: flow is not authorized to perform: s3tables:GetNamespace"),
        UserError,
    ),
    "wrong secret": (403, WRONG_SIGNATURE, UserError),
    "unknown key": (403, gateway_error("The security token included in the request is invalid."), UserError),
    "late session": (403, gateway_error("The security token included in the request is expired"), UserError),
    "clock": (
        403,
        gateway_error("Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z"),
        UserError,
    ),
    "not signed in": (401, rest_error("NotAuthorizedException", "Sign in first."), UserError),
    "broken": (500, rest_error("InternalServerErrorException", "An internal error occurred."), RetryableError),
}


ON_S3_TABLES: Final = {
    "namespace": "shop",
    "credentials": {"auth_type": "AWSAccessKey", "awsAccessKeyId": "id", "awsSecretAccessKey": "planted"},
    "catalog": {
        "catalog_type": S3_TABLES,
        "table_bucket_arn": "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake",
    },
}


@pytest.mark.parametrize("name", S3_TABLES_ANSWERS)
def test_what_s3_tables_answers_is_explained_at_validate(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    status, body, kind = S3_TABLES_ANSWERS[name]
    with answering(status, body) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3TABLES", server.uri)
        text = refused(ON_S3_TABLES, binding(), kind=kind)
    check_text("catalog_errors", f"Amazon S3 Tables: {name}", text, {server.uri: "URI"})


SIGNED_ANSWERS: Final[Mapping[str, tuple[int, str]]] = {
    "wrong secret": (403, WRONG_SIGNATURE),
    "wrong service": (403, gateway_error("Credential should be scoped to correct service: 'glue'.")),
    "not signed in": (401, rest_error("NotAuthorizedException", "Sign in first.")),
}


@pytest.mark.parametrize("name", SIGNED_ANSWERS)
def test_what_a_signed_rest_catalog_answers_is_explained_at_validate(
    s3_server: S3Server, bucket: str, name: str
) -> None:
    status, body = SIGNED_ANSWERS[name]
    with answering(status, body) as server:
        signed = {"rest.sigv4-enabled": "true", "rest.signing-name": "s3"}
        text = refused(on_s3(s3_server, bucket, "shop", {**rest(server.uri), "properties": signed}), binding())
    check_text("catalog_errors", f"signed REST: {name}", text, {server.uri: "URI"})


def test_s3_tables_that_cannot_be_reached_is_named_at_validate(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"http://{free_address()}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3TABLES", nobody)
    text = refused(ON_S3_TABLES, binding(), kind=RetryableError)
    check_text("catalog_errors", "Amazon S3 Tables: nobody listens", text, {nobody: "URI"})


ROLE: Final = {
    "auth_type": "AWSRole",
    "aws_role_arn": "arn:aws:iam::123456789012:role/flow",
    "awsAccessKeyId": "id",
    "awsSecretAccessKey": "planted",
}


def test_a_token_service_of_aws_that_is_busy_is_named_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(400, sts_error("Throttling", "Rate exceeded")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.uri)
        config = {**on_s3(s3_server, bucket, "shop", glue()), "credentials": ROLE}
        text = refused(config, binding(), kind=RetryableError)
    check_text("catalog_errors", "AWS STS: busy", text)


STS_ANSWERS: Final[Mapping[str, str]] = {
    "unknown key": sts_error("InvalidClientTokenId", "The security token included in the request is invalid."),
    "late session": sts_error("ExpiredToken", "The security token included in the request is expired"),
    "wrong secret at MinIO": sts_error(
        "AccessDenied",
        "The request signature we calculated does not match the signature you provided. Check your key and signing "
        "method.",
    ),
    "wrong clock": sts_error(
        "SignatureDoesNotMatch",
        "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z (20260101T002500Z - 15 min.)",
    ),
}


@pytest.mark.parametrize("name", STS_ANSWERS)
def test_what_a_token_service_of_aws_answers_is_explained_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with answering(403, STS_ANSWERS[name]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.uri)
        text = refused({**on_s3(s3_server, bucket, "shop", glue()), "credentials": ROLE}, binding())
    check_text("catalog_errors", f"AWS STS: {name}", text)


def test_a_token_service_of_aws_that_cannot_be_reached_is_named_at_validate(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"http://{free_address()}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", nobody)
    text = refused({**on_s3(s3_server, bucket, "shop", glue()), "credentials": ROLE}, binding(), kind=RetryableError)
    check_text("catalog_errors", "AWS STS: nobody listens", text, {nobody: "URI"})


def test_a_warehouse_that_is_no_directory_is_named_at_validate(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = refused({"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": str(tmp_path / "file")}})
    check_text("catalog_errors", "Local: no directory", text, {str(tmp_path): "DIRECTORY"})


# Real catalogs


@pytest.mark.catalog
def test_an_endpoint_that_can_be_used_is_validated_and_left_as_it_was(rest_on_s3: RestCatalogOnS3) -> None:
    s3 = rest_on_s3.s3
    config = on_s3(s3, rest_on_s3.bucket, "validated", rest(rest_on_s3.uri))
    answers = validated(config, binding("first"), binding("second"))
    assert [answer.resource_path for answer in answers] == [("validated", "first"), ("validated", "second")]
    with s3.client() as client:
        assert "Contents" not in client.list_objects_v2(Bucket=rest_on_s3.bucket, Prefix="lake/flow/materialize")


@pytest.mark.catalog
def test_apache_s_rest_server_has_one_warehouse_and_serves_it_whatever_warehouse_is_asked_for(
    rest_on_s3: RestCatalogOnS3,
) -> None:
    there = rest(rest_on_s3.uri)
    config = on_s3(rest_on_s3.s3, rest_on_s3.bucket, "validated", {**there, "warehouse": "no-such-warehouse"})
    assert validated(config, binding()) == validated({**config, "catalog": there}, binding())
    with open_catalog(parse(config, [])[0]) as asked, rest_on_s3.client() as told:
        namespace = f"warehouse_{uuid4().hex}"
        told.create_namespace(namespace)
        assert asked.namespace_exists(namespace)


@pytest.mark.catalog
def test_keys_that_the_object_store_does_not_accept_are_found_before_anything_is_written(
    rest_on_s3: RestCatalogOnS3,
) -> None:
    config = on_s3(rest_on_s3.s3, rest_on_s3.bucket, "validated", rest(rest_on_s3.uri))
    text = refused({**config, "credentials": aws_keys(rest_on_s3.s3, "planted")}, binding())
    assert "the secret access key does not belong to the access key id" in text
