"""Where metrics go: which addresses and files a config may name."""

from pathlib import Path

import pytest

from connector.config.metrics_options import ListenAddress, parse_listen_address, parse_metrics_file
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError

CONFIG = {"namespace": "shop", "catalog": {"catalog_type": "Local"}}


def with_metrics(**metrics: object) -> dict[str, object]:
    return {**CONFIG, "advanced": {"metrics": metrics}}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ListenAddress("127.0.0.1", 9464)),
        (":9464", ListenAddress("127.0.0.1", 9464)),
        ("0.0.0.0:1", ListenAddress("0.0.0.0", 1)),
        ("localhost:65535", ListenAddress("localhost", 65535)),
        ("[::1]:9464", ListenAddress("::1", 9464)),
    ],
)
def test_an_address_without_a_host_is_loopback(text: str, address: ListenAddress) -> None:
    assert parse_listen_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "::1:9464",
        "[::1]",
        "[x:1",
        "http://x:1",
        "a b:1",
        "127.0.0.1:²",
        "a\0b:1",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a port"):
        parse_listen_address(text)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert str(parse_listen_address("[::1]:9464")) == "[::1]:9464"
    assert str(parse_listen_address("9464")) == "127.0.0.1:9464"


@pytest.mark.parametrize("text", ["flow.prom", "/var/flow.txt", "/var/flow", "~/flow.prom", "/var/\0.prom"])
def test_a_file_that_node_exporter_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ends with \.prom"):
        parse_metrics_file(text)


def test_metrics_are_off_unless_a_place_is_set() -> None:
    assert not parse(CONFIG, [])[0].advanced.metrics.are_on
    assert not parse(with_metrics(), [])[0].advanced.metrics.are_on
    assert not parse(with_metrics(listen=""), [])[0].advanced.metrics.are_on
    parsed = parse(with_metrics(listen="9464", file="/var/flow.prom"), [])[0].advanced.metrics
    assert (parsed.listen, parsed.file) == (ListenAddress("127.0.0.1", 9464), Path("/var/flow.prom"))
    assert parsed.are_on


def test_the_error_names_the_property() -> None:
    with pytest.raises(InvalidConfigError, match=r"^/advanced/metrics/listen: must be a port"):
        parse(with_metrics(listen="nowhere"), [])
