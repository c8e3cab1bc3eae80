"""What a task that cannot go on says of it: one sentence, and for those who ask the traceback."""

import logging
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.types import UUIDType

from connector.errors import BrokenTaskError
from connector.renewal import Lease
from connector.spark.claims import ClaimServer
from connector.spark.layout import TableLayout
from connector.spark.tasks import write_files
from connector.staging import Spool
from protocol.request import Store
from rows.store_lines import binding, plain


def test_an_error_that_nobody_has_thought_of_is_one_sentence_and_its_traceback_is_for_debugging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of = binding(UUIDType(), index=0)  # open refuses it: no task knows how to write it
    spool = Spool(tmp_path / "spool")
    spool.add(Store(0, 1, 1, (plain(1, "a"),)))
    spool.complete()
    with closing(ClaimServer(tmp_path / "claims")) as claims, caplog.at_level(logging.DEBUG):
        claims.begin(spool, [lambda: TableLayout(of, f"file://{tmp_path}", (), "prefix", Lease.until((), None))])
        assert list(write_files(claims.address, [0])) == []
        claims.finish()
        with pytest.raises(BrokenTaskError) as raised:
            spool.check()
    assert str(raised.value) == (
        "Internal error in a Spark task: KeyError: UUIDType(). Nothing of this transaction has become visible. "
        "Run with LOG_LEVEL=debug for a traceback."
    )
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert "Traceback (most recent call last)" in record.getMessage()
