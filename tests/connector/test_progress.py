"""What is told of a transaction while it runs."""

import logging

import pytest

from connector import progress
from connector.logs import FIELDS
from connector.progress import TransactionProgress
from connector.state import DataFile, Lineage, StagedCommit
from protocol.request import Store

ROWS = Store(0, 1, 3, (b"x" * 1_000_000,))
STAGED = StagedCommit(
    Lineage("acme/task", "a.v1", "00000000-ffffffff"),
    prev="",
    next="f1",
    path=("shop", "a"),
    table_uuid="a-uuid",
    spec_id=0,
    schema_id=0,
    files=(DataFile("file:///a.parquet", 6, 2_500_000, (4,), ()),),
)


def test_a_staged_transaction_is_told_in_numbers_for_people_and_machines(caplog: pytest.LogCaptureFixture) -> None:
    told = TransactionProgress(7)
    with caplog.at_level(logging.INFO):
        told.received(ROWS)
        told.received(ROWS)
        told.staged([STAGED])
    [record] = caplog.records
    assert record.getMessage().startswith("transaction 7: 6 rows, 2.0 MB received, ")
    assert record.getMessage().endswith("staged 2.5 MB in 1 data file(s) of 1 table(s)")
    fields = getattr(record, FIELDS)
    assert (fields["rows"], fields["bytes"], fields["fileBytes"]) == (6, 2_000_000, 2_500_000)


def test_a_long_transaction_is_told_of_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPORT_EVERY", 0.0)
    with caplog.at_level(logging.INFO):
        TransactionProgress(1).received(ROWS)
    assert "3 rows, 1.0 MB received" in caplog.text


def test_an_empty_transaction_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        TransactionProgress(1).staged([])
    assert not caplog.records


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_gets_a_line_that_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    TransactionProgress(1).received(ROWS)
    assert ("\rtransaction 1: 3 rows" in capsys.readouterr().err.replace("\x1b[2K", "")) is is_terminal
