"""What is told of a transaction while it runs."""

import logging
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from connector.host import facts
from connector.host.logs import FIELDS
from connector.model.invalid_values import Tally, Treated, Treatment
from connector.model.state import DataFile, StagedCommit, StagedTransaction, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.session import progress
from connector.session.progress import TransactionProgress
from connector.session.transactions import OpenTransaction
from protocol.request import BackfillComplete, Flush, Store

ROWS = Store(0, 1, 3, (b"x" * 1_000_000,))
STAGED = StagedCommit(
    WriterId("acme/task", "a.v1", "00000000-ffffffff"),
    prev="",
    next="f1",
    path=TableIdentifier("shop", "a"),
    table_uuid="a-uuid",
    spec_id=0,
    schema_id=0,
    files=(DataFile("file:///a.parquet", 6, 2_500_000, (4,), ()),),
)

NULLED = Tally()
NULLED.add("note", Treatment.NULLED, Treated(4, "line 3"))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return dict(getattr(record, FIELDS))


def test_a_staged_transaction_is_told_in_numbers_for_people_and_machines(caplog: pytest.LogCaptureFixture) -> None:
    told = TransactionProgress(7, ["shop.a"])
    with caplog.at_level(logging.INFO):
        told.report_received(ROWS)
        told.report_received(ROWS)
        told.report_staged([STAGED], {0: NULLED})
    [record] = caplog.records
    assert record.getMessage().startswith("transaction 7: 6 rows, 2.0 MB received, ")
    assert record.getMessage().endswith("staged 2.5 MB in 1 data file(s) of 1 table(s); 4 nulled")
    assert {**fields_of(record), "seconds": 0} == {
        "event": "staged",
        "eventType": "connectorStatus",
        "transaction": 7,
        "rows": 6,
        "bytes": 2_000_000,
        "seconds": 0,
        "tables": 1,
        "files": 1,
        "fileBytes": 2_500_000,
        "clamped": 0,
        "nulled": 4,
        "rejected": 0,
    }


def test_answered_loads_are_told_with_the_time_since_the_first_one_and_since_the_flush(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    now = time.monotonic()
    with caplog.at_level(logging.INFO):
        TransactionProgress(7).report_loaded(5, 3, began=now - 40, flushed=now - 2)
    [record] = caplog.records
    assert record.getMessage().startswith("transaction 7: 5 keys loaded, 3 of them found, ")
    logged = fields_of(record)
    assert 40 <= logged.pop("seconds") < 60
    assert 2 <= logged.pop("searchSeconds") < 20
    assert logged == {"event": "loaded", "transaction": 7, "loads": 5, "found": 3}
    [loaded] = told
    assert isinstance(loaded, facts.LoadedTransaction)
    assert 40 <= loaded.seconds < 60
    assert 2 <= loaded.search_seconds < 20


@pytest.mark.parametrize(
    ("backfilled", "text"),
    [
        ([], "7 table(s) are open"),
        (["a", "b"], "7 table(s) are open. A backfill replaces the rows of a, b when the first new ones come"),
        ([*"abcdefg"], "7 table(s) are open. A backfill replaces the rows of a, b, c, d, e and 2 more when the first "
         "new ones come"),
    ],
)  # fmt: skip
def test_an_open_session_is_told_with_the_backfills_that_have_begun(
    caplog: pytest.LogCaptureFixture, backfilled: list[str], text: str
) -> None:
    with caplog.at_level(logging.INFO):
        progress.log_opened([*"abcdefg"], backfilled)
    [record] = caplog.records
    assert record.getMessage() == text
    assert (fields_of(record)["tables"], fields_of(record)["backfills"]) == (7, len(backfilled))


def test_a_staged_transaction_is_told_to_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    transaction = TransactionProgress(7, ["shop.a"])
    transaction.report_received(ROWS)
    transaction.report_received(ROWS)
    transaction.report_staged([STAGED], {0: NULLED})
    assert [fact for fact in told if isinstance(fact, facts.StagedRows | facts.TreatedValues)] == [
        facts.StagedRows("shop.a", "f1", 6, 2_500_000),
        facts.TreatedValues("shop.a", Treatment.NULLED, 4),
    ]
    [ended] = [fact for fact in told if isinstance(fact, facts.EndedTransaction)]
    assert ended.rows == 6
    assert 0 < ended.seconds < 20


def test_rows_are_told_to_the_metrics_with_the_time_of_the_transaction_s_first_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A binding that does not exist is an error of the protocol, which is found when its rows are decoded."""
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    transaction = TransactionProgress(7, ["shop.a", "shop.b"])
    transaction.report_received(ROWS)
    transaction.end_received()
    [first] = told
    assert isinstance(first, facts.ReceivedRows)
    while time.time() == first.since:
        pass
    for binding in (1, 2, -1):
        transaction.report_received(replace(ROWS, binding=binding))
    transaction.end_received()
    assert told == [facts.ReceivedRows(table, 3, 1_000_000, first.since) for table in ("shop.a", "shop.b")]


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (12_345, "12.3 kB"), (2_500_000, "2.5 MB"), (7_654_000_000, "7.7 GB")]
)
def test_a_small_transaction_has_a_size_too(caplog: pytest.LogCaptureFixture, size: int, text: str) -> None:
    told = TransactionProgress(7)
    with caplog.at_level(logging.INFO):
        told.report_received(ROWS)
        told.report_staged([replace(STAGED, files=(DataFile("file:///a.parquet", 6, size, (4,), ()),))], {})
    assert f"staged {text} in 1 data file(s)" in caplog.text


def test_a_long_transaction_is_told_of_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPORT_EVERY", 0.0)
    with caplog.at_level(logging.INFO):
        TransactionProgress(1).report_received(ROWS)
    [record] = caplog.records
    assert "3 rows, 1.0 MB received" in record.getMessage()
    assert {**fields_of(record), "seconds": 0} == {
        "event": "receiving",
        "eventType": "connectorStatus",
        "transaction": 1,
        "rows": 3,
        "bytes": 1_000_000,
        "seconds": 0,
    }


def test_a_capture_that_has_read_its_source_again_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A binding that the session does not have is no reason to fail."""
    told = TransactionProgress(1, ["shop.a", "shop.b"])
    jobs: Any = SimpleNamespace(start_writing=lambda *_: None)
    transaction = OpenTransaction(told, jobs, [], lambda *_: StagedTransaction())
    of_others = BackfillComplete(2, "2026-11-24"), BackfillComplete(-1, "2026-11-24")
    flush = Flush(backfill_completes=(BackfillComplete(1, "2026-11-23T00:00:00Z"), *of_others))
    with caplog.at_level(logging.INFO):
        assert not [*transaction.answer_loads(flush)]
    [record] = caplog.records
    assert record.getMessage() == (
        "table shop.b: a capture has read its source again. Rows that were published before 2026-11-23T00:00:00Z may "
        "be outdated. They stay in the table"
    )
    assert fields_of(record) == {"event": "outdated", "table": "shop.b", "before": "2026-11-23T00:00:00Z"}


def test_an_empty_transaction_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        TransactionProgress(1).report_staged([], {})
    assert not caplog.records


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_gets_a_line_that_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    TransactionProgress(1).report_received(ROWS)
    assert ("\rtransaction 1: 3 rows" in capsys.readouterr().err.replace("\x1b[2K", "")) is is_terminal
