"""How much of the disk a session's transactions may have: sorted runs need as much as the spool."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.types import LongType

from connector.host import facts
from connector.host.refresh import Lease, Refreshed
from connector.iceberg.bound_table import BoundTable, Quarantine
from connector.model.binding import PLAIN, Arrangement, SortField
from connector.model.properties import Properties
from connector.model.state import WriterId
from connector.session.transaction_jobs import TransactionJobs, TransactionLayouts
from connector.spark.blocks.ledger import Ledger
from connector.spark.blocks.transaction_files import Layouts
from encoding.store_lines import binding
from protocol.flow import WHOLE_RANGE
from protocol.request import Store

SORTED: Final = Arrangement(0, (), 1, (SortField(2, "identity", False, True),))
LINES: Final = Store(0, 1, 1, (b"a line\n",))


class Claims:
    """Stands for the server of blocks: it keeps what it was given."""

    address = "the socket"
    ledger: Ledger
    layouts: Layouts

    def begin(self, ledger: Ledger, layouts: Layouts, _: object) -> None:
        self.ledger, self.layouts = ledger, layouts


@pytest.mark.parametrize(("arrangement", "spool", "run"), [(PLAIN, 100, None), (SORTED, 50, 50 // 4)])
def test_a_spool_leaves_half_of_the_disk_to_the_sorted_runs_of_all_tasks(
    arrangement: Arrangement, spool: int, run: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    writer, lease = WriterId("acme/task", "a.v1", WHOLE_RANGE.key_range), Lease(Properties())
    plain, other = (
        BoundTable(binding(LongType()), writer, "a-uuid", each, 0, "file:///a", Properties(), lease)
        for each in (PLAIN, arrangement)
    )
    spark = SimpleNamespace(is_local=True, cores=4, explain_lost_task=None, run=lambda _: Future[None]())
    session_spark: Any = SimpleNamespace(
        spark=spark, directories=SimpleNamespace(files=tmp_path), limits=SimpleNamespace(spool=100, disk=100)
    )
    claims: Any = Claims()
    access: Any = [Refreshed("access", lambda: lease)] * 2
    jobs = TransactionJobs(session_spark, claims, [plain, other], access, lambda: pytest.fail("no key is loaded"))

    jobs.start_writing(["a", "b"], {}).add(LINES)

    layout = claims.layouts.make(1)
    assert layout.arrangement == arrangement
    if run is not None:
        assert layout.run_limit == run
    claims.ledger.complete()
    assert facts.SpoolSize(LINES.size, spool) in told


def test_tables_of_rejected_rows_are_no_bindings() -> None:
    writer, lease = WriterId("acme/task", "a.v1", WHOLE_RANGE.key_range), Lease(Properties())
    table = BoundTable(binding(LongType()), writer, "a-uuid", PLAIN, 0, "file:///a", Properties(), lease)
    spark: Any = None
    tables = [replace(table, quarantine=Quarantine(2, 0.1)), table, table]
    assert TransactionLayouts(tables, [], spark, 1, [], {}).bindings == 2


def test_a_task_without_bindings_starts_its_job_too(tmp_path: Path) -> None:
    spark = SimpleNamespace(is_local=True, explain_lost_task=None, run=lambda _: Future[None]())
    session_spark: Any = SimpleNamespace(
        spark=spark, directories=SimpleNamespace(files=tmp_path), limits=SimpleNamespace(spool=1, disk=2)
    )
    claims: Any = Claims()
    TransactionJobs(session_spark, claims, [], [], lambda: pytest.fail("no key is loaded")).start_writing([], {})
    assert claims.layouts.bindings == 0
