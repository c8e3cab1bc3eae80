"""One transaction's Spark job: Store lines in, data files out, both at once."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from connector.encoding.values.arrays import Words
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.threads import map_in_threads
from connector.model.invalid_values import Tally
from connector.model.state import DataFile, FileList
from connector.spark.blocks.block_transfer import BlockTransfer, OnThisMachine, ThroughTheStore
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.ledger import Ledger, TaskOutput
from connector.spark.blocks.spool import Spool
from connector.spark.blocks.transaction_files import Layouts, delete_unstaged
from connector.spark.jvm.cluster import (
    BIND_ADDRESS,
    DRIVER_HOST,
    find_driver_host,
    format_address,
    is_local,
    parse_claims_address,
)
from connector.spark.jvm.spark_session import Jobs, Spark
from connector.spark.tasks.write_task import write_files
from connector.storage.file_io import write_list
from protocol.request import Store

if TYPE_CHECKING:
    from connector.spark.jobs.merge_job import MergeJob  # only for arranged tables

log = logging.getLogger(__name__)

# The pending commits of all tables and shards must fit into one message of 64 MiB.
LONGEST_IN_STATE: Final = 64 << 10  # bytes, of one table
LARGEST_IN_STATE: Final = 8 << 20  # bytes, of a transaction of all shards


@dataclass(frozen=True)
class Written:
    """A transaction's durable files."""

    files: Mapping[int, tuple[DataFile, ...] | FileList] = field(default_factory=dict)  # by table: its binding's index
    treated: Mapping[int, Tally] = field(default_factory=dict)  # values that are not written as they were sent
    existing_keys: Mapping[int, Sequence[Words]] = field(default_factory=dict)  # hashes of those whose rows exist


class WriteJob:
    """A job of long-lived tasks that claim spooled blocks while more of them come."""

    def __init__(
        self,
        jobs: Jobs,
        claims: ClaimServer,
        spool: Spool,
        transfer: BlockTransfer,
        layouts: Layouts,
        share: float = 1.0,
    ) -> None:
        """`share` is the part of all keys that the session has."""
        self._spool = spool
        self._ledger = Ledger(spool)
        self._claims = claims
        self._transfer = transfer
        self._layouts = layouts
        self._share = share
        claims.begin(self._ledger, layouts, transfer)
        self._jobs = jobs
        self._job = jobs.run(partial(write_files, claims.address))
        self._job.add_done_callback(self._report_failure)
        self._lists = defaultdict[int, list[str]](list)  # of files, by table
        self._merging: MergeJob | None = None

    def add(self, store: Store) -> None:
        """Spool a run of lines. Waits while the spool is full. Raises the error that has stopped a task meanwhile."""
        self._ledger.add(store)

    def finish(self) -> Written:
        """Return the files of all rows, durable. Raises the first error that has stopped the job or a task."""
        counted = self._wait_for_files()
        files = self._merge(counted) if counted.runs else counted.files
        self._spool.remove()
        self._remove_objects()
        return Written(self._list_long(files), counted.treated, counted.existing_keys)

    def discard(self) -> None:
        """Let the tasks end, and delete what they have written, as far as possible. Nothing may refer to it."""
        self._ledger.fail(RetryableError())  # only its tasks are told
        self._claims.finish()  # a task deletes its files, or has reported them by then
        self._spool.remove()  # with it and the objects, the sorted runs go: a merge begins no other file
        self._remove_objects()
        tables = {*self._ledger.files, *self._lists}
        delete_unstaged(self._layouts, {index: self._list_locations(index) for index in tables})
        if self._merging:
            self._merging.discard()

    def _list_locations(self, table_index: int) -> list[str]:
        counted = (file.path for file in self._ledger.files.get(table_index, ()))
        return [*chain(counted, self._lists.get(table_index, ()))]

    def _list_long(self, files: Mapping[int, tuple[DataFile, ...]]) -> dict[int, tuple[DataFile, ...] | FileList]:
        """Write the lists of files that are too long for the state."""
        indexes = find_long_lists(files, self._share)

        def write(table_index: int) -> FileList:
            # A layout with fresh credentials is asked for only where something is written with them.
            layout = self._layouts.make(table_index)
            location = layout.new_list_location()
            self._lists[table_index].append(location)
            return write_list(layout.io, location, files[table_index])

        return {**files, **dict(zip(indexes, map_in_threads(write, indexes, "lists"), strict=True))}

    def _wait_for_files(self) -> TaskOutput:
        self._ledger.complete()
        if not self._ledger.wait_for(self._job):
            try:
                self._job.result()
            except ConnectorError as error:
                self._ledger.fail(error)
            self._claims.finish()
        return self._ledger.close()  # raises the first cause; Spark knows only that a task failed

    def _merge(self, counted: TaskOutput) -> dict[int, tuple[DataFile, ...]]:
        from connector.spark.jobs.merge_job import MergeJob

        self._merging = MergeJob(self._jobs, self._layouts, counted.runs)
        merged = self._merging.finish()
        return {
            index: counted.files.get(index, ()) + merged.get(index, ()) for index in sorted({*counted.files, *merged})
        }

    def _remove_objects(self) -> None:
        self._transfer.remove()
        if self._ledger.runs:
            from connector.spark.jobs.merge_job import remove_runs

            remove_runs(self._layouts, self._ledger.runs)

    def _report_failure(self, job: "Future[list[None]]") -> None:
        if not job.cancelled() and (error := job.exception()):
            log.debug("the Spark job of a transaction has failed: %s", error)  # perhaps after its blocks were counted
            self._ledger.fail(error)


def find_long_lists(files: Mapping[int, tuple[DataFile, ...]], share: float) -> list[int]:
    """Return the indexes of the tables whose lists of files must be kept outside the state: because a list is long, or
    because it is one of the longest of very many. `share` is the part of all keys that the shard has."""
    largest = max(LONGEST_IN_STATE, LARGEST_IN_STATE * share)
    sizes = {index: len(msgspec.json.encode(table_files)) for index, table_files in files.items()}
    by_size = sorted(sizes, key=sizes.__getitem__)
    totals = accumulate(sizes[index] for index in by_size)
    return [
        index
        for index, total in zip(by_size, totals, strict=True)
        if sizes[index] > LONGEST_IN_STATE or total > largest
    ]


def choose_transfer(spark: Spark, layouts: Layouts) -> BlockTransfer:
    """Return how blocks reach the tasks of one transaction: by this machine's disk, or through the object store."""
    if spark.is_local:
        return OnThisMachine(spark.explain_lost_task)
    return ThroughTheStore(layouts)


def open_claim_server(settings: Mapping[str, str], socket: Path) -> ClaimServer:
    """Return a server that Spark's tasks can reach: at the socket, or on the network if they run on a cluster.

    Raises UserError if this process cannot listen there.
    """
    if is_local(settings):
        return ClaimServer(str(socket))
    address = parse_claims_address(settings)
    try:
        return ClaimServer(address, find_driver_host(settings))
    except OSError as error:
        raise UserError(
            f"Spark's tasks cannot be listened for at {format_address(*address)} ({error}). Set {DRIVER_HOST} in "
            f"/advanced/spark to an address of this machine that the cluster reaches, or {BIND_ADDRESS} where it has "
            "another name here."
        ) from error
