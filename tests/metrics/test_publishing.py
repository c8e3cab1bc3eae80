"""Metrics are served by HTTP and written to a file; what prevents that is said at once."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from connector.config.metrics_options import ListenAddress, MetricsOptions
from connector.host import facts
from connector.host.cgroup import Cgroup
from connector.host.errors import UserError
from connector.metrics import publishing
from connector.metrics.http_server import serve_metrics
from connector.metrics.publishing import publish_metrics, try_metrics
from connector.metrics.text_file import write_metrics
from protocol.flow import WHOLE_RANGE
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.sessions.scraping import read_file, scrape, scrape_text
from support.snapshots import check_text

WHOLE = WHOLE_RANGE.key_range
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"


@pytest.fixture(autouse=True)
def _observe_nothing_afterwards() -> Iterator[None]:
    yield
    facts.report = facts.drop


def address_of(text: str) -> ListenAddress:
    host, port = text.split(":")
    return ListenAddress(host, int(port))


def listening(address: str) -> MetricsOptions:
    return MetricsOptions(listen=address_of(address))


def test_facts_are_served_and_written(tmp_path: Path) -> None:
    address, file = free_address(), tmp_path / "flow.prom"
    with publish_metrics(MetricsOptions(address_of(address), file), "acme/task", WHOLE):
        assert read_file(file.read_text()).value("rows_received_total") == 0, "the file is there at once"
        facts.report(facts.ReceivedRows("shop.orders", 3, 100, 1.0))
        assert scrape(address).value("rows_received_total", task="acme/task", table="shop.orders") == 3
        assert "# TYPE materialize_iceberg_rows_received_total counter" in scrape_text(address)
    assert read_file(file.read_text()).value("rows_received_total") == 3, "the last numbers are written at the end"


@pytest.mark.parametrize(("limit", "shown"), [("1000000000", [1e9, 300]), ("max", [])])
def test_temporary_files_in_memory_count_where_memory_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, shown: list[float]
) -> None:
    """The spool of a container with `--tmpfs /tmp` is in no process's memory. A group without a limit may have files of
    other programs."""
    for name, text in {"membership": "0::/", "memory.max": limit, "memory.stat": "anon 9\nshmem 300"}.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(publishing, "Cgroup", partial(Cgroup, tmp_path / "membership", tmp_path))
    with publish_metrics(MetricsOptions(file=tmp_path / "flow.prom"), "acme/task", WHOLE):
        seen = read_file((tmp_path / "flow.prom").read_text())
    counted = [seen.values("memory_limit_bytes"), seen.values("memory_bytes", process="temporary_files")]
    assert [value for values in counted for value in values.values()] == shown
    assert seen.value("memory_bytes", process="connector") > 0


def test_a_shard_of_a_part_of_the_keys_is_told_apart(tmp_path: Path) -> None:
    with publish_metrics(MetricsOptions(file=tmp_path / "flow.prom"), "acme/task", LEFT):
        [file] = tmp_path.iterdir()
        assert read_file(file.read_text()).values("session_start_timestamp_seconds", key_range=LEFT)


def test_shards_of_one_config_publish_side_by_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address, file = free_address(), tmp_path / "materialize-iceberg-lake.prom"
    options = MetricsOptions(address_of(address), file)
    with publish_metrics(options, "acme/task", LEFT), publish_metrics(options, "acme/task", RIGHT):
        for key_range in (LEFT, RIGHT):
            written = (tmp_path / f"materialize-iceberg-lake-{key_range}.prom").read_text()
            assert read_file(written).values("session_start_timestamp_seconds", key_range=key_range)
        assert not file.exists()
        assert scrape(address).values("session_start_timestamp_seconds", key_range=LEFT)
    [text] = caplog.messages
    assert text.startswith("the metrics of this shard are not served by HTTP: /advanced/metrics/listen: ")


def test_the_file_follows_the_numbers_while_the_session_runs(tmp_path: Path) -> None:
    written = tmp_path / "flow.prom"
    registry = CollectorRegistry()
    with write_metrics(written, registry, interval=0.02):
        first = written.stat().st_ino
        assert wait_until(lambda: written.stat().st_ino != first)


def test_a_write_that_fails_later_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    with write_metrics(directory / "flow.prom", CollectorRegistry(), interval=0.02):
        (directory / "flow.prom").unlink()
        directory.rmdir()
        assert wait_until(lambda: bool(caplog.records))
    assert len(caplog.records) == 1
    assert "the file of metrics is not renewed: /advanced/metrics/file: " in caplog.text


def test_a_scrape_that_fails_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ZeroDivisionError

    address, registry = free_address(), CollectorRegistry()
    registry.register(Broken())
    with caplog.at_level("DEBUG"), serve_metrics(address_of(address), registry), pytest.raises(RemoteDisconnected):
        scrape_text(address)
    assert "ZeroDivisionError" in caplog.text


def test_only_metrics_are_served() -> None:
    address = free_address()
    with publish_metrics(listening(address), "acme/task", WHOLE):
        assert scrape_text(f"{address}/metrics?format=")
        with pytest.raises(HTTPError, match="404"):
            scrape_text(f"{address}/secrets?")


def test_the_end_waits_for_no_scraper() -> None:
    """The server would look up every half second whether it is to end."""
    address = free_address()
    assert sum(end_while_a_scraper_is_connected(address) for _ in range(6)) < 0.9


def end_while_a_scraper_is_connected(address: str) -> float:
    with publish_metrics(listening(address), "acme/task", WHOLE):
        scrape(address)
        host, port = address.split(":")
        silent = socket.create_connection((host, int(port)))  # it sends nothing
        began = time.monotonic()
    took = time.monotonic() - began
    silent.close()
    return took


def test_many_scrapes_at_once_see_whole_numbers() -> None:
    address = free_address()
    with publish_metrics(listening(address), "acme/task", WHOLE):
        ended = threading.Event()

        def tell_all() -> None:
            for _ in range(2000):
                facts.report(facts.ReceivedRows("shop.orders", 1, 10, 1.0))
            ended.set()

        tellers = [threading.Thread(target=tell_all) for _ in range(3)]
        for teller in tellers:
            teller.start()
        seen = [scrape(address).value("rows_received_total")]
        while not ended.is_set():
            seen.append(scrape(address).value("rows_received_total"))
        for teller in tellers:
            teller.join()
        assert seen == sorted(seen)
        assert scrape(address).value("rows_received_total") == 6000


def test_an_ipv6_address_is_listened_at() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            address = ListenAddress(*server.getsockname()[:2])
    except OSError:
        pytest.skip("this machine has no IPv6")
    with publish_metrics(MetricsOptions(address), "acme/task", WHOLE):
        assert scrape(str(address)).value("rows_received_total", task="acme/task") is not None


def test_a_taken_port_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = MetricsOptions(ListenAddress("127.0.0.1", taken.getsockname()[1]))
        address = str(options.listen)
        with pytest.raises(UserError) as error:
            try_metrics(options)
        check_text("machine_errors", "a port for metrics that is taken", str(error.value), {address: "{address}"})
        with pytest.raises(UserError, match="cannot listen at"), publish_metrics(options, "acme/task", WHOLE):
            pass


def test_a_host_that_is_not_of_this_machine_is_an_error() -> None:
    with pytest.raises(UserError) as error:
        try_metrics(MetricsOptions(ListenAddress("192.0.2.1", 9464)))
    check_text("machine_errors", "a host for metrics that is another machine's", str(error.value))


def test_a_file_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written \(Is a directory\)"):
        try_metrics(MetricsOptions(file=tmp_path))


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        try_metrics(MetricsOptions(file=tmp_path / "missing" / "flow.prom"))
    check_text(
        "machine_errors", "a directory for metrics that is missing", str(error.value), {str(tmp_path): "{directory}"}
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /sys, which takes no files from any user")
def test_a_directory_that_takes_no_files_is_an_error() -> None:
    with pytest.raises(UserError) as error:
        try_metrics(MetricsOptions(file=Path("/sys/flow.prom")))
    check_text("machine_errors", "a directory for metrics that takes no files", str(error.value))


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    address = free_address()
    try_metrics(MetricsOptions(address_of(address), tmp_path / "flow.prom"))
    assert not [*tmp_path.iterdir()]
    try_metrics(listening(address))  # the port is free again


def test_a_session_without_metrics_does_not_load_the_client_of_prometheus() -> None:
    code = (
        "import sys, connector.driver, connector.rpc.open\n"
        "import connector.session.open_session, connector.session.session_threads\n"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False).returncode == 0
