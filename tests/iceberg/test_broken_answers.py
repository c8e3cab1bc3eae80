"""Answers of REST catalogs and token servers that cannot be read, and addresses and headers that cannot be used: what a
user reads, and whether a restart may help."""

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from pyiceberg.exceptions import NoSuchTableError
from requests import Request, RequestException, TooManyRedirects

from connector.config.catalog import RestCatalog
from connector.config.secret import Secret
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.refresh import Lease
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.catalogs.rest_errors import translate_errors
from connector.iceberg.catalogs.sign_in import OAuth2Client, TokenServerError, TokenSession
from connector.model.properties import Properties
from support.servers.certificate import new_certificate
from support.servers.odd_servers import Dripping, answering, answering_each, dripping
from support.servers.server_process import free_address
from support.snapshots import check_text

# `requests` leaves the last of too many answers to the garbage collector.
UNCLOSED: Final = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CONFIG: Final = json.dumps({"defaults": {}, "overrides": {}})


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test has left to the garbage collector must not be told as a warning of another test."""
    yield
    gc.collect()


class Broken(NamedTuple):
    """An answer, and the error that it leads to."""

    kind: type[ConnectorError]
    body: str = CONFIG
    headers: Mapping[str, str] = {}
    status: int = 200


BROKEN: Final[Mapping[str, Broken]] = {
    "an answer that ends too early": Broken(RetryableError, headers={"Content-Length": "1000"}),
    "an answer in broken chunks": Broken(RetryableError, headers={"Transfer-Encoding": "chunked"}),
    "an answer in another encoding": Broken(RetryableError, headers={"Content-Encoding": "gzip"}),
    "redirects in a circle": Broken(UserError, "", {"Location": "/", "Content-Length": "0"}, 307),
    "a redirect to an address of another kind": Broken(UserError, status=307, headers={"Location": "ftp://host/"}),
    "a redirect to a malformed address": Broken(UserError, status=307, headers={"Location": "http://a..b/"}),
}


@contextmanager
def explained(uri: str, kind: type[ConnectorError], name: str, placeholders: Mapping[str, str]) -> Iterator[None]:
    """Whoever uses the catalog at this address hears of an error of this kind, with the text of the snapshot."""
    with pytest.raises(ConnectorError) as error, translate_errors(uri):
        yield
    assert type(error.value) is kind
    check_text("catalog_errors", f"REST: {name}", str(error.value), placeholders)


@UNCLOSED
@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_cannot_be_read_is_explained(name: str) -> None:
    broken = BROKEN[name]
    with (
        answering(broken.status, broken.body, broken.headers) as server,
        explained(server.uri, broken.kind, name, {server.uri: "URI"}),
    ):
        open_rest(RestCatalog(server.uri, "wh"), {})


@UNCLOSED
@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_of_a_token_server_that_cannot_be_read_is_explained(name: str) -> None:
    broken = BROKEN[name]
    with (
        answering(200, CONFIG) as server,
        answering(broken.status, broken.body, broken.headers) as tokens,
        explained(server.uri, broken.kind, f"token server, {name}", {server.uri: "URI", tokens.uri: "TOKENS"}),
    ):
        open_rest(RestCatalog(server.uri, "wh", credential=Secret("robot:word"), oauth2_server_uri=tokens.uri), {})


def test_the_secret_is_sent_to_no_server_that_the_token_server_redirects_to() -> None:
    with (
        answering(200, json.dumps({"access_token": "t", "token_type": "bearer"})) as other,
        answering(307, "", {"Location": f"{other.uri}/tokens", "Content-Length": "0"}) as tokens,
        answering(200, CONFIG) as server,
        explained(
            server.uri,
            UserError,
            "token server, a redirect to another server",
            {server.uri: "URI", tokens.uri: "TOKENS", other.uri: "OTHER"},
        ),
    ):
        open_rest(RestCatalog(server.uri, "wh", credential=Secret("robot:word"), oauth2_server_uri=tokens.uri), {})
    assert not other.requests


SECRET_HEADERS: Final = {"Authorization": "Bearer planted-token", "X-Api-Key": "planted-key"}


def secrets_of(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if "planted" in value}


def open_with_secrets(uri: str) -> None:
    header = Properties({"header.X-Api-Key": "planted-key"})
    open_rest(RestCatalog(uri, "wh", token=Secret("planted-token"), properties=header), {})


def test_no_header_of_the_config_is_sent_to_a_server_that_the_catalog_redirects_to() -> None:
    with (
        answering(200, CONFIG) as other,
        answering(307, "", {"Location": f"{other.uri}/v1/config", "Content-Length": "0"}) as server,
    ):
        open_with_secrets(server.uri)
    assert [secrets_of(headers) for headers in server.headers] == [SECRET_HEADERS]
    assert [(secrets_of(headers), headers.get("X-Iceberg-Access-Delegation")) for headers in other.headers] == [
        ({}, "vended-credentials")
    ]


@UNCLOSED
def test_the_headers_of_the_config_stay_in_a_redirect_to_the_same_server() -> None:
    with answering(307, "", {"Location": "/", "Content-Length": "0"}) as server, pytest.raises(TooManyRedirects):
        open_with_secrets(server.uri)
    assert len(server.headers) > 1
    assert all(secrets_of(headers) == SECRET_HEADERS for headers in server.headers)


def test_a_password_of_the_machine_is_not_sent_to_the_token_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    request = TokenSession().prepare_request(Request("POST", "http://127.0.0.1:1/tokens", data={"a": "b"}))
    assert "Authorization" not in request.headers


@pytest.mark.parametrize("token", ["planted\nword", "plantéd", ""])
def test_a_token_that_no_header_can_have_is_refused_and_not_repeated(token: str) -> None:
    with (
        answering(200, CONFIG) as server,
        answering(200, json.dumps({"access_token": token, "token_type": "bearer"})) as tokens,
        explained(server.uri, UserError, "a token that is none", {server.uri: "URI", tokens.uri: "TOKENS"}),
    ):
        open_rest(RestCatalog(server.uri, "wh", credential=Secret("robot:word"), oauth2_server_uri=tokens.uri), {})


def fetch_token(lifetime: object) -> Lease[Secret]:
    granted = {"access_token": "planted", "token_type": "bearer", "expires_in": lifetime}
    with answering(200, json.dumps(granted)) as tokens:
        return OAuth2Client(TokenSession(), tokens.uri, Secret("robot:word"), {}).fetch()


@pytest.mark.parametrize("lifetime", [3599, 3599.0, "3599"])
def test_a_token_s_lifetime_may_be_a_text(lifetime: object) -> None:
    """OAuth2 says that it is a number, but some servers write it as a text."""
    before = time.time()
    ends = fetch_token(lifetime).expires_at
    assert ends is not None
    assert before + 3599 <= ends <= time.time() + 3599


@pytest.mark.parametrize("lifetime", [None, "null", "inf", "nan", 0, -1])
def test_a_token_without_a_lifetime_is_used_until_it_is_refused(lifetime: object) -> None:
    assert fetch_token(lifetime).expires_at is None


@pytest.mark.parametrize("lifetime", ["", "an hour", True, []])
def test_a_lifetime_that_is_no_number_is_not_of_oauth2(lifetime: object) -> None:
    with pytest.raises(TokenServerError, match="not in the form of OAuth2") as raised:
        fetch_token(lifetime)
    assert "planted" not in str(raised.value)


def test_a_header_that_the_catalog_asks_for_but_that_cannot_be_sent_is_explained() -> None:
    config = json.dumps({"defaults": {"header.X-Planted": "one\ntwo"}, "overrides": {}})
    with (
        answering(200, config) as server,
        explained(server.uri, UserError, "an invalid header", {server.uri: "URI"}),
    ):
        open_rest(RestCatalog(server.uri, "wh"), {}).list_namespaces()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("header.X-Planted", "€", "an invalid header"),
        ("header.X Planted", "one", "an invalid header"),
        ("rest-page-size", "-1", "an invalid property in the catalog's own config"),
        ("rest-page-size", "many", "an invalid property in the catalog's own config"),
    ],
)
def test_what_the_catalog_s_own_config_must_not_have_is_explained(name: str, value: str, problem: str) -> None:
    config = json.dumps({"defaults": {}, "overrides": {name: value, "ignored": value}, "identifiers": []})
    with answering(200, config) as server, explained(server.uri, UserError, problem, {server.uri: "URI"}):
        open_rest(RestCatalog(server.uri, "wh"), {}).list_tables("ns")


ADDRESSES: Final[Mapping[str, str]] = {
    "an address with an empty label": "http://a..b/catalog",
    "an address of another kind": "ftp://host/catalog",
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_that_cannot_be_used_is_explained(name: str) -> None:
    with explained(ADDRESSES[name], UserError, name, {}):
        open_rest(RestCatalog(ADDRESSES[name], "wh"), {})


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_of_a_token_server_that_cannot_be_used_is_explained(name: str) -> None:
    uri = ADDRESSES[name]
    with (
        answering(200, CONFIG) as server,
        explained(server.uri, UserError, f"token server, {name}", {server.uri: "URI"}),
    ):
        open_rest(RestCatalog(server.uri, "wh", credential=Secret("robot:word"), oauth2_server_uri=uri), {})


PROXIES: Final[Mapping[str, tuple[Callable[[], str], type[ConnectorError]]]] = {
    "a proxy that is not there": (lambda: f"http://{free_address()}", RetryableError),
    "a proxy with a malformed address": (lambda: "http://", UserError),
    "a proxy with a malformed port": (lambda: "http://robot:planted@:x", UserError),
    "a proxy of another kind": (lambda: "ftp://proxy:3128", UserError),
}


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_that_cannot_be_used_is_explained(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    address, kind = PROXIES[name]
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", address())
    with explained("http://catalog.invalid", kind, name, {}):
        open_rest(RestCatalog("http://catalog.invalid", "wh"), {})


@pytest.mark.parametrize(
    ("name", "begins", "ends"), [("certificate that is not valid yet", 1, 2), ("certificate that has expired", -2, -1)]
)
def test_a_certificate_that_is_not_valid_now_points_at_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, begins: int, ends: int
) -> None:
    certificate = new_certificate(tmp_path, timedelta(begins), timedelta(ends))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.certificate))
    with dripping(Dripping.HEADERS, certificate) as (uri, _), explained(uri, UserError, name, {uri: "URI"}):
        open_rest(RestCatalog(uri, "wh"), {})


@pytest.mark.parametrize("credential", [None, Secret("robot:word")])
def test_certificates_that_are_not_there_are_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, credential: Secret | None
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority.pem"))
    with explained("https://host", UserError, "certificates that are not there", {str(tmp_path): "…"}):
        open_rest(RestCatalog("https://host", "wh", credential=credential), {})


def test_any_other_failure_of_a_request_is_told_in_the_words_of_the_client() -> None:
    with explained("http://host", RetryableError, "any other failure", {}):
        raise RequestException("the client gave up")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", ""),
        ("null", ""),
        ("404 page not found", ""),
        ('{"message": "no Route matched with those values"}', ": no Route matched with those values"),
        ('{"timestamp": 1, "status": 404, "error": "Not Found"}', ""),
    ],
)
def test_a_gateway_that_says_404_does_not_say_that_a_table_is_gone(body: str, said: str) -> None:
    """Nor that the address is wrong, which has led to the catalog just before."""
    with answering_each(lambda path: (404, body) if "/tables/" in path else (200, CONFIG)) as uri:
        catalog = open_rest(RestCatalog(uri, "wh"), {})
        with explained(uri, RetryableError, f"a gateway's status 404{said}", {uri: "URI"}):
            catalog.load_table(("shop", "orders"))


@pytest.mark.parametrize("body", ["404 page not found", '{"message": "no Route matched with those values"}'])
def test_an_address_at_which_no_catalog_is_is_wrong(body: str) -> None:
    with answering(404, body) as server, explained(server.uri, UserError, "no catalog at all", {server.uri: "URI"}):
        open_rest(RestCatalog(server.uri, "wh"), {})


@pytest.mark.parametrize(
    "error",
    [
        {"message": "gone", "type": "NoSuchTableException", "code": 404},
        {"message": "gone", "code": "NotFound", "target": None, "details": None},  # of OneLake
    ],
)
def test_a_catalog_that_says_404_says_that_a_table_is_gone(error: dict[str, object]) -> None:
    said = json.dumps({"error": error})
    with answering_each(lambda path: (404, said) if "/tables/" in path else (200, CONFIG)) as uri:
        catalog = open_rest(RestCatalog(uri, "wh"), {})
        with pytest.raises(NoSuchTableError):
            catalog.load_table(("shop", "orders"))
