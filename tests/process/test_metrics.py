"""What a real session tells Prometheus: by HTTP, and in a file."""

import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from connector import VERSION
from fixtures.collection import Field
from fixtures.conversation import CONFIG, Row
from support.engines.readers import readers_catalog
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime
from support.sessions.scraping import Scraped, read_file, scrape, scrape_text
from support.tables.local_tables import refusing_commits

pytestmark = pytest.mark.spark

OTHER = replace(LEDGER, name="acmeCo/other", table="other")
AMOUNTS = replace(
    LEDGER,
    fields=(*LEDGER.fields, Field("amount", "/amount", ("integer",))),
    settings={"on_invalid": "quarantine", "max_rejected_ratio": 1, "delta_updates": False},
)
SECRET = "spark-secret-of-the-test"


def config(**metrics: str) -> Mapping[str, Any]:
    spark = {"spark.acme.secret": SECRET}
    return {**CONFIG, "advanced": {"metrics": metrics, "spark": spark}}


def test_the_numbers_of_a_session_are_those_of_its_conversation(tmp_path: Path) -> None:
    address, file = free_address(), tmp_path / "flow.prom"
    runtime = Runtime(tmp_path, [LEDGER, OTHER], config(listen=address, file=str(file)))
    with runtime.open(publish=True) as session:
        assert scrape(address).value("rows_received_total") == 0
        session.flush()
        session.store({"id": 1, "note": "a value"}, {"id": 2}, {"id": 3})
        session.store({"id": 4}, binding=1)
        session.start_commit()
        check_staged(scrape(address))
        session.acknowledge()
        check_committed(scrape(address))
        with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
            session.transaction({"id": 5})
            check_refused(scrape(address))
        assert wait_until(lambda: scrape(address).value("waiting_transactions") == 0)
        text = scrape_text(address)
        session.connector.process.send_signal(signal.SIGTERM)
        assert session.connector.wait().status == 128 + signal.SIGTERM
    written = read_file(file.read_text())
    assert written.value("rows_committed_total", table="shop.ledger") == 4
    assert written.value("commit_failing") == 0
    assert [*tmp_path.glob("flow.prom*")] == [file], "a file is replaced by renaming"
    assert SECRET not in text + file.read_text()
    assert "a value" not in text + file.read_text()


def test_loads_deletes_and_rejected_rows_are_counted_while_many_scrape(tmp_path: Path) -> None:
    address = free_address()
    runtime = Runtime(tmp_path, [AMOUNTS], config(listen=address))
    with runtime.open(publish=True) as session, scraping_all_the_time(address) as scrape_last:
        session.flush()
        session.store({"id": 1, "amount": 1}, {"id": 2, "amount": 2}, {"id": 3, "amount": "3 pounds"})
        session.start_commit()
        session.acknowledge()
        session.load([1], [7])
        session.flush()
        session.store_rows(Row(0, {"id": 1, "amount": 5}, exists=True), Row(0, {"id": 7, "amount": 7}))
        session.start_commit()
        session.acknowledge()
        seen = scrape_last()
        began = time.monotonic()
        assert session.finish().status == 0
        assert time.monotonic() - began < 60
    assert (seen.value("loads_total"), seen.value("loads_found_total")) == (2, 1)
    check_steps(seen)
    assert seen.value("rows_received_total", table="shop.ledger") == 5
    assert seen.value("rows_rejected_total", table="shop.ledger") == 1
    assert seen.value("rows_committed_total", table="shop.ledger") == 4
    assert seen.value("rows_committed_total", table="shop.ledger__rejected") == 1
    assert seen.value("rows_deleted_total", table="shop.ledger") == 1
    assert seen.value("delete_files_total") == 1
    assert seen.value("delete_file_bytes_total", table="shop.ledger") > 500
    assert seen.value("table_delete_files", table="shop.ledger") == 1
    assert seen.value("spool_limit_bytes") > 0
    assert seen.value("spool_bytes") == 0
    assert not seen.values("oldest_waiting_row_timestamp_seconds")


def test_a_taken_port_ends_the_session_before_anything_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = Runtime(tmp_path, config=config(listen=address)).open_and_fail()
    assert outcome.status == 1
    assert f"cannot listen at {address} (Address already in use)" in outcome.last_log_line


@contextmanager
def scraping_all_the_time(address: str) -> Iterator[Callable[[], Scraped]]:
    """Scrapers that end with their session. The call is the last scrape before that: it raises the error of a scraper
    that has ended already."""
    counts = [0, 0]

    def scrape_until_it_ends(number: int) -> None:
        while True:
            scrape_text(address)
            counts[number] += 1

    def scrape_last() -> Scraped:
        for scraper in scrapers:
            if scraper.done():
                scraper.result()
        assert all(counts)
        return scrape(address)

    pool = ThreadPoolExecutor(len(counts))
    scrapers = [pool.submit(scrape_until_it_ends, number) for number in range(len(counts))]
    yield scrape_last
    assert all(isinstance(scraper.exception(), OSError | HTTPException) for scraper in scrapers)


def check_steps(seen: Scraped) -> None:
    """Two transactions of five rows, one of them with Loads."""
    assert (seen.value("loads_duration_seconds_count"), seen.value("search_duration_seconds_count")) == (1, 1)
    assert 0 < seen.value("search_duration_seconds_sum") <= seen.value("loads_duration_seconds_sum") < 60
    assert (seen.value("transaction_rows_count"), seen.value("transaction_rows_sum")) == (2, 5)
    assert 0 < seen.value("staging_duration_seconds_sum") < 60


def check_refused(refused: Scraped) -> None:
    assert refused.value("commit_failing", table="shop.ledger") == 1
    assert refused.value("commit_failing", table="shop.other") == 0
    assert refused.value("sign_in_refused") == 0
    assert refused.value("waiting_rows", table="shop.ledger") == 1
    assert refused.value("commits_failed_total", table="shop.ledger") == 1


def check_staged(staged: Scraped) -> None:
    assert staged.value("rows_received_total", table="shop.ledger") == 3
    assert staged.value("rows_received_total", table="shop.other") == 1
    assert staged.value("received_bytes_total", table="shop.other") > 50
    assert staged.value("rows_staged_total", table="shop.ledger") == 3
    assert staged.value("rows_committed_total") == 0
    assert staged.value("waiting_transactions") == 2
    assert staged.value("waiting_rows", table="shop.ledger") == 3
    assert len(staged.values("oldest_waiting_row_timestamp_seconds")) == 2


def check_committed(committed: Scraped) -> None:
    assert committed.value("rows_committed_total", table="shop.ledger") == 3
    assert committed.value("commits_total") == 2
    assert committed.value("commit_duration_seconds_count", table="shop.other") == 1
    assert committed.value("data_files_total", table="shop.other") == 1
    assert committed.value("data_file_bytes_total") == committed.value("staged_bytes_total") > 1000
    assert committed.value("table_data_files", table="shop.other") == 1
    assert committed.value("transactions_total") == 1
    assert committed.value("waiting_transactions") == 0
    assert not committed.values("oldest_waiting_row_timestamp_seconds")
    assert committed.value("last_commit_timestamp_seconds", table="shop.other") > 1.7e9
    assert len(committed.values("build_info", version=VERSION, spark="4.1.4")) == 1
    assert committed.value("memory_bytes", process="jvm") > 50e6
    assert {"task", "table"} <= committed.labels
    assert all(("task", "acmeCo/task") in labels for _, labels in committed.samples)
