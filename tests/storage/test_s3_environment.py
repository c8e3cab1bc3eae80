"""Requests for files in S3 go through the environment's proxy, and trust its certificates, whoever sends them."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.io import S3_ACCESS_KEY_ID, S3_ENDPOINT, S3_PROXY_URI, S3_REGION, S3_SECRET_ACCESS_KEY

from connector.checks.s3_probe import open_bucket
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.redaction import redact
from connector.model.properties import Properties
from connector.spark.jvm.jvm_command import select_inherited
from connector.storage import arrow_file_io
from connector.storage.file_access import file_properties
from connector.storage.file_io import LARGEST_HELD, StoreFileIO, write_small_file
from connector.storage.s3_environment import find_certificates, find_proxy
from connector.storage.s3_objects import S3Objects, open_s3_objects
from connector.storage.storage_errors import translate_errors
from support.servers.certificate import new_certificate
from support.servers.forward_proxy import ForwardProxy, forward_proxy
from support.servers.odd_servers import Dripping, dripping
from support.servers.s3_server import S3Server, versitygw, versitygw_server
from support.snapshots import check_text

NOWHERE: Final = "https://127.0.0.1:1"  # only the proxy answers for it
PROXY: Final = "http://user:planted@proxy:3128"
AMAZON: Final = {S3_REGION: "eu-west-1"}
KEYS: Final = {**AMAZON, S3_ACCESS_KEY_ID: "key", S3_SECRET_ACCESS_KEY: "secret"}
PROXY_VARIABLES: Final = (
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "all_proxy",
)


@pytest.fixture(autouse=True)
def _no_other_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*PROXY_VARIABLES, "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_file_io, "ATTEMPTS", 1)


@pytest.mark.parametrize(
    ("environment", "properties", "expected"),
    [
        ({}, AMAZON, None),
        ({"HTTPS_PROXY": PROXY}, AMAZON, PROXY),
        ({"https_proxy": "proxy:3128"}, AMAZON, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://user:p^ nted%@proxy:3128"}, AMAZON, "http://user:p%5E%20nted%25@proxy:3128"),
        ({"HTTP_PROXY": PROXY}, AMAZON, None),
        ({"HTTPS_PROXY": PROXY}, {S3_ENDPOINT: "http://store:9000"}, None),
        ({"HTTP_PROXY": PROXY}, {S3_ENDPOINT: "http://store:9000"}, PROXY),
        ({"HTTPS_PROXY": PROXY}, {S3_ENDPOINT: "store:9000"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ".amazonaws.com"}, AMAZON, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "s3.eu-west-1.amazonaws.com"}, AMAZON, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "s3.us-east-1.amazonaws.com"}, AMAZON, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, {S3_ENDPOINT: "https://10.1.2.3:9000"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, {**AMAZON, S3_PROXY_URI: "http://own:1"}, "http://own:1"),
        ({"HTTPS_PROXY": PROXY}, {}, PROXY),
        ({}, {**AMAZON, S3_PROXY_URI: "http://user:p%5E^@own:1"}, "http://user:p%5E%5E@own:1"),
    ],
)
def test_the_proxy_is_that_of_the_property_or_of_the_environment(
    environment: dict[str, str], properties: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert find_proxy(properties) == expected


def test_the_password_of_a_proxy_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:only-here-in-a-proxy@proxy:3128")
    assert find_proxy(AMAZON)
    assert redact("407: only-here-in-a-proxy") == "407: ***"


def test_aws_tools_certificates_are_used_before_those_of_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_certificates() is None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/of/requests.pem")
    assert find_certificates() == "/of/requests.pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", "/of/aws.pem")
    assert find_certificates() == "/of/aws.pem"


def test_workers_of_this_machine_have_the_same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTPS_PROXY", "NO_PROXY", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(variable, variable)
        assert select_inherited()[variable] == variable


@pytest.fixture
def proxy(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardProxy]:
    """The only way to the store, behind a certificate that only AWS_CA_BUNDLE trusts."""
    certificate = new_certificate(tmp_path)
    with forward_proxy(s3_server.endpoint, certificate) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.uri)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.certificate))
        yield proxy


@pytest.mark.catalog
def test_all_requests_for_files_go_through_the_proxy(s3_server: S3Server, bucket: str, proxy: ForwardProxy) -> None:
    properties = file_properties(s3_server.file_properties(), {S3_ENDPOINT: NOWHERE})
    io = StoreFileIO(properties)
    large = bytes(2 * LARGEST_HELD)
    for location, content in {f"s3://{bucket}/small": b"small", f"s3://{bucket}/large": large}.items():
        write_small_file(io, location, content)
        with io.new_input(location).open() as stream:
            assert stream.read() == content
        io.delete(location)
    by_pyarrow = len(proxy.hosts)
    assert by_pyarrow
    with open_bucket(bucket, "probe", properties) as opened:
        opened.write("file", b"by boto3")
        assert opened.read("file") == b"by boto3"
    assert len(proxy.hosts) > by_pyarrow
    assert set(proxy.hosts) == {"127.0.0.1:1"}


@pytest.fixture
def store_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A store in a company's network, with a certificate of the company's own authority."""
    certificate = new_certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.certificate))
    with versitygw_server(versitygw(), tmp_path, certificate) as server:
        yield server


@pytest.mark.catalog
def test_the_certificates_of_the_environment_are_trusted(store_with_tls: S3Server) -> None:
    bucket = store_with_tls.new_bucket()
    properties = file_properties(store_with_tls.file_properties())
    small = open_s3_objects(Properties(properties))
    assert small
    assert small.put(f"s3://{bucket}/small", b"small")
    with StoreFileIO(properties).new_input(f"s3://{bucket}/small").open() as stream:
        assert stream.read() == b"small"
    with open_bucket(bucket, "", properties) as opened:
        assert opened.read("small") == b"small"


@pytest.mark.catalog
def test_a_certificate_that_is_not_trusted_is_explained(
    store_with_tls: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    properties = file_properties(store_with_tls.file_properties())
    assert not S3Objects(properties).put("s3://lake/small", b"small")
    check_errors(properties, UserError, "a certificate that is not trusted")
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")
    check_errors(properties, UserError, "a file of certificates that is missing")


def test_a_certificate_that_has_expired_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = new_certificate(tmp_path, timedelta(-2), timedelta(-1))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.certificate))
    with dripping(Dripping.HEADERS, certificate) as (uri, _):
        check_errors({**KEYS, S3_ENDPOINT: uri}, UserError, "a certificate that has expired")


@pytest.mark.parametrize(
    ("variable", "proxy", "name"),
    [
        ("HTTPS_PROXY", "http://127.0.0.1:1", "a proxy that is not there"),
        ("HTTPS_PROXY", "http://user:planted^ {%}@127.0.0.1:1", "a proxy that is not there"),
        ("HTTPS_PROXY", "http://proxy.invalid:1", "a proxy with an unknown name"),
        ("ALL_PROXY", "socks5://user:planted@127.0.0.1:1080", "a proxy of another kind"),
        ("HTTPS_PROXY", "http://[planted", "a malformed address of a proxy"),
        ("HTTPS_PROXY", "http://proxy", "a proxy without a port"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_explained(
    variable: str, proxy: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, proxy)
    is_there = name in ("a proxy that is not there", "a proxy with an unknown name")
    keys = {"s3.access-key-id": "AKID", "s3.secret-access-key": "planted"}
    check_errors(file_properties(keys, {S3_ENDPOINT: NOWHERE}), RetryableError if is_there else UserError, name)


def check_errors(properties: Mapping[str, str], kind: type[ConnectorError], name: str) -> None:
    """Check what the client for data files says, and what that of the storage probe says."""
    with pytest.raises(kind) as of_files, translate_errors("s3://lake/small"):
        StoreFileIO(dict(properties)).new_input("s3://lake/small").open().read()
    with pytest.raises(kind) as of_probe, open_bucket("lake", "", properties) as opened:
        opened.read("small")
    for client, error in (("a writer", of_files), ("a probe", of_probe)):
        text = str(error.value)
        assert "planted" not in text
        check_text("storage_errors", f"{client}: {name}", re.sub(r"127\.0\.0\.1:\d+|after \d+ ms", "…", text))
