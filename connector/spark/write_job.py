"""One transaction's Spark job: Store lines in, data files out, both at once."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from connector.host.errors import ConnectorError
from connector.model.invalid_values import Tally
from connector.model.state import DataFile, FileList
from connector.spark.block_transfer import BlockTransfer
from connector.spark.claim_server import ClaimServer
from connector.spark.layout import Layout
from connector.spark.ledger import Counted
from connector.spark.spool import Spool
from connector.spark.tasks import write_files
from protocol.protocol_error import ProtocolError
from protocol.request import Store

RunTasks: TypeAlias = Callable[[Callable[[Iterable[int]], Iterable[None]]], Future[list[None]]]

LONGEST_REMOVAL: Final = 5.0  # seconds


@dataclass(frozen=True)
class Written:
    """What a transaction's rows have become."""

    files: Mapping[int, tuple[DataFile, ...] | FileList]  # by table: its binding's index
    treated: Mapping[int, Tally]  # values that did not land as they were sent, by binding


class WriteJob:
    """A job of long-lived tasks that claim spooled blocks while more of them come.

    Tables are counted as the bindings' tables first, then the tables of rejected rows.
    """

    def __init__(
        self,
        run: RunTasks,
        claims: ClaimServer,
        spool: Spool,
        transfer: BlockTransfer,
        layouts: Sequence[Layout],
        rejected: Sequence[Layout] = (),
    ) -> None:
        self._spool = spool
        self._claims = claims
        self._transfer = transfer
        self._layouts = (*layouts, *rejected)
        claims.begin(spool, layouts, transfer)
        self._job = run(partial(write_files, claims.address))
        self._job.add_done_callback(self._report_failure)

    def add(self, store: Store) -> None:
        """Spool a run of lines; raises the error that has stopped a task meanwhile."""
        try:
            self._spool.add(store)
        except (ConnectorError, ProtocolError):
            self._clear_away()
            raise

    def finish(self) -> Written:
        """Everything that the rows have become, durable."""
        try:
            counted = self._wait_for_files()
        except (ConnectorError, ProtocolError):
            self._clear_away()
            raise
        self._spool.remove()
        self._transfer.remove()
        named = {table: self._layouts[table]().for_state(files) for table, files in counted.files.items()}
        return Written(named, counted.treated)

    def _wait_for_files(self) -> Counted:
        self._spool.complete()
        self._spool.wait_for(self._job)
        try:
            self._job.result()
        except ConnectorError as error:
            self._spool.fail(error)
        counted = self._claims.finish()
        self._spool.check_written()  # raises the first cause; Spark knows only that a task failed
        return counted

    def _clear_away(self) -> None:
        """After a failure, which ends the process: the spool's directory goes with it, but objects in a store would
        stay."""
        # Waits only for a while: the failure may be the store's own.
        removal = threading.Thread(target=self._transfer.remove, name="removal", daemon=True)
        removal.start()
        removal.join(LONGEST_REMOVAL)

    def _report_failure(self, job: "Future[list[None]]") -> None:
        if not job.cancelled() and (error := job.exception()):
            self._spool.fail(error)
