"""One transaction's Spark job: Store lines in, data files out, both at once."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from connector.errors import ConnectorError
from connector.invalid_values import Tally
from connector.spark.claim_server import ClaimServer
from connector.spark.handover import Handover, OnThisMachine, ThroughTheStore
from connector.spark.layout import Layout
from connector.spark.session import Spark
from connector.spark.tasks import write_files
from connector.staging import Spool
from connector.state import DataFile, FileList
from protocol.errors import ProtocolError
from protocol.request import Store


@dataclass(frozen=True)
class Written:
    """What a transaction's rows have become."""

    files: Mapping[int, tuple[DataFile, ...] | FileList]  # by table: its binding's index
    treated: Mapping[int, Tally]  # values that did not land as they were sent, by binding


class Writing:
    """A job of long-lived tasks that claim spooled blocks while more of them come. The layouts are those of the bindings'
    tables; behind them come, as tables are counted, the tables of rejected rows."""

    def __init__(
        self, spark: Spark, claims: ClaimServer, spool: Spool, layouts: Sequence[Layout], rejected: Sequence[Layout]
    ) -> None:
        self._spool = spool
        self._claims = claims
        self._layouts = (*layouts, *rejected)
        self._handover: Handover = OnThisMachine() if spark.is_local else ThroughTheStore(layouts)
        claims.begin(spool, layouts, self._handover)
        self._job = spark.run(partial(write_files, claims.address))
        self._job.add_done_callback(self._report_failure)

    def add(self, store: Store) -> None:
        """Spool a run of lines; raises what has stopped a task meanwhile."""
        with self._removed_on_failure():
            self._spool.add(store)

    def finish(self) -> Written:
        """Everything that the rows have become, durable."""
        with self._removed_on_failure():
            self._spool.complete()
            self._spool.wait_for(self._job)
            try:
                self._job.result()
            except ConnectorError as error:
                self._spool.fail(error)
            counted = self._claims.finish()
            self._spool.check_written()  # raises the first cause, where Spark knows only that a task failed
        self._spool.remove()
        self._handover.remove()
        named = {table: self._layouts[table]().for_state(files) for table, files in counted.files.items()}
        return Written(named, counted.treated)

    @contextmanager
    def _removed_on_failure(self) -> Iterator[None]:
        """The spool's directory goes with the process that a failure ends; what is elsewhere would stay."""
        try:
            yield
        except (ConnectorError, ProtocolError):
            self._handover.remove()
            raise

    def _report_failure(self, job: "Future[list[None]]") -> None:
        if not job.cancelled() and (error := job.exception()):
            self._spool.fail(error)
