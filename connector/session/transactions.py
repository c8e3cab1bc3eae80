"""A session's transactions. Each one receives rows, stages them, and is committed after the runtime's log has it.

The phases of a transaction are types. An OpenTransaction receives rows. Its `start_commit` makes the rows durable and
returns staged commits, which are values. `acknowledge` commits them; to repeat it does no harm. A later session can
commit them too, because the connector state names them.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson

from connector.host import facts
from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import fence
from connector.iceberg.commits.fence import WriterFence, file_prefix
from connector.model.invalid_values import Tally
from connector.model.properties import Properties
from connector.model.state import DataFile, FileList, ReportedCommits, StagedCommit, StagedTransaction
from connector.session.commit_facts import measure_staged
from connector.session.committer import Committer, run_retries
from connector.session.progress import TransactionProgress, TreatmentWarnings
from connector.session.rejection_limit import RejectionLimit
from connector.spark.block_transfer import Source
from connector.spark.claims import ClaimServer
from connector.spark.engine import Engine
from connector.spark.spool import Spool
from connector.spark.table_files import Layout, TableLayout
from connector.spark.write_job import WriteJob, Written, choose_transfer
from protocol import request

if TYPE_CHECKING:
    from connector.iceberg.table_view import SessionViews, TableView
    from connector.session.loads import Found, TransactionLoads

LONGEST_OFFSETS: Final = 1_000  # characters; each snapshot of a table keeps its own

# The first argument of both has the prefix of each table's files.
StartWriting: TypeAlias = Callable[[Sequence[str], Mapping[int, Source]], WriteJob]
StartLoading: TypeAlias = Callable[[Sequence[str]], "TransactionLoads"]


class Session:
    """The bound tables of one shard, and for each the fence value on which its next transaction is based."""

    def __init__(
        self,
        tables: Sequence[BoundTable],
        recovered: Sequence[StagedCommit],
        committer: Committer,
        start_writing: StartWriting,
        start_loading: StartLoading,
    ) -> None:
        self._tables = tables
        self._recovered = tuple(recovered)
        self._committer = committer
        self._start_writing = start_writing
        self._start_loading = start_loading
        self._fences = [_begin_fence(table, committer) for table in tables]
        self._numbers = count(1)
        self._limits = {
            table.binding.index: RejectionLimit(table.binding.table, table.quarantine.max_ratio)
            for table in tables
            if table.quarantine
        }
        self._names = [table.binding.table for table in tables]
        self._warnings = TreatmentWarnings(self._names)

    def retry_pending(self, interrupt: Callable[[Exception], None]) -> AbstractContextManager[None]:
        """Retry pending commits in the background, and one last time at the end; see `run_retries`."""
        return run_retries(self._committer, interrupt)

    def begin(self) -> "OpenTransaction":
        """Return a new transaction without rows."""
        return OpenTransaction(
            TransactionProgress(next(self._numbers), self._names),
            lambda row_ids: self._start_writing(self._file_prefixes(), row_ids),
            lambda: self._start_loading(self._file_prefixes()),
            self._stage,
        )

    def acknowledge(self, staged: StagedTransaction) -> ReportedCommits:
        """Commit a transaction of this session. The first call also reports the commits of the recovery."""
        reported = ReportedCommits((*self._recovered, *self._committer.commit(staged.commits)))
        self._recovered = ()
        return reported

    def _file_prefixes(self) -> list[str]:
        tables = zip(self._tables, self._fences, strict=True)
        return [
            file_prefix(table.writer, table.table_uuid, writer_fence.in_file_names) for table, writer_fence in tables
        ]

    def _stage(self, written: Written, found: "Mapping[int, Found]", message: request.StartCommit) -> StagedTransaction:
        """Return a staged commit for each table that got files or loses rows. Each draws its table's next fence
        value."""
        self._check_updates(written, found)
        digest = hashlib.sha256(orjson.dumps(message.runtime_checkpoint)).hexdigest()[:16]
        offsets = message.describe_offsets(LONGEST_OFFSETS)
        commits = {
            index: replace(
                self._stage_table(index, written.files.get(index, ()), found.get(index), digest),
                offsets=offsets.get(self._tables[index].writer.state_key, ""),
            )
            for index in sorted({*written.files, *found})
        }
        for index, limit in self._limits.items():
            accepted = commits[index].rows if index in commits else 0
            limit.check(accepted, written.treated.get(index, Tally()))
        self._warnings.warn(written.treated)
        if facts.observe:
            measure_staged(commits.values(), written.treated, self._names)
        return StagedTransaction(tuple(commits.values()))

    def _check_updates(self, written: Written, found: "Mapping[int, Found]") -> None:
        updated = [table.binding for table in self._tables if table.binding.updates]
        if not updated:
            return
        from connector.session.loads import check_stored  # only for standard updates

        for binding in updated:
            check_stored(binding, found.get(binding.index), written.updates.get(binding.index))

    def _stage_table(
        self, index: int, files: tuple[DataFile, ...] | FileList, found: "Found | None", checkpoint: str
    ) -> StagedCommit:
        table, writer_fence = self._tables[index], self._fences[index]
        staged = StagedCommit(
            writer=table.writer,
            prev=writer_fence.prev,
            next=fence.new_value(writer_fence.prev),
            path=table.binding.path,
            table_uuid=table.table_uuid,
            spec_id=table.arrangement.spec_id,
            schema_id=table.schema_id,
            files=files,
            checkpoint=checkpoint,
            published_column_id=table.published_column_id,
            located=found.located if found else None,
            sort_order_id=table.arrangement.sort_order_id,
            known=writer_fence.known,
        )
        self._fences[index] = writer_fence.after(staged)
        return staged


class OpenTransaction:
    """Receives Loads until they are answered, then rows until they are staged. The Spark jobs start with the end of the
    Loads, and with the first row."""

    def __init__(
        self,
        progress: TransactionProgress,
        start_writing: Callable[[Mapping[int, Source]], WriteJob],
        start_loading: "Callable[[], TransactionLoads]",
        stage: "Callable[[Written, Mapping[int, Found], request.StartCommit], StagedTransaction]",
    ) -> None:
        self._progress = progress
        self._start_writing = start_writing
        self._start_loading = start_loading
        self._stage = stage
        self._loads: TransactionLoads | None = None
        self._writing: WriteJob | None = None

    def load(self, loads: request.Load) -> None:
        """Receive a run of Loads. They are answered when all of them are there."""
        if self._loads is None:
            self._loads = self._start_loading()
        self._loads.add(loads)

    def answer_loads(self, message: request.Flush) -> Iterator[bytes]:
        """Yield the text of the answers to all Loads, part by part."""
        self._progress.report_outdated(message.backfill_completes)
        if self._loads:
            yield from self._loads.answer()
            found = sum(each.answered.keys for each in self._loads.found.values())
            self._progress.report_loaded(self._loads.count, found)

    def store(self, rows: request.Store) -> None:
        """Receive a run of rows. Raises the error that stopped the writing of earlier rows."""
        if self._writing is None:
            self._writing = self._start_writing(self._loads.row_ids if self._loads else {})
        self._writing.add(rows)
        self._progress.report_received(rows)

    def start_commit(self, message: request.StartCommit) -> StagedTransaction:
        """Make all rows durable outside this process, and return the staged commits."""
        self._progress.end_received()
        found = self._loads.found if self._loads else {}
        written = self._writing.finish() if self._writing else Written()
        if self._loads:
            self._loads.close()
        if self._writing is None and not found:
            return StagedTransaction()
        staged = self._stage(written, found, message)
        self._progress.report_staged(staged.commits, written.treated.values())
        return staged


def _begin_fence(table: BoundTable, committer: Committer) -> WriterFence:
    pending = committer.find_pending((table.binding.path, table.table_uuid), table.writer.key_range)
    return WriterFence.begin(table.properties, table.writer, pending)


class WriteJobs:
    """Knows the tables of a session and their storage, and starts the search and the write job of each transaction.

    `tables` has the bindings' tables first, then the tables of rejected rows. `bindings` is the number of the former.
    `access` has the storage settings of each table, with credentials that are refreshed. `open_views` returns the views
    that Loads search, the same ones each time.
    """

    def __init__(
        self,
        engine: Engine,
        claims: ClaimServer,
        tables: Sequence[BoundTable],
        access: Sequence[Refreshed[Properties]],
        bindings: int,
        open_views: "Callable[[], SessionViews]",
    ) -> None:
        self._engine = engine
        are_plain = all(table.arrangement.is_plain for table in tables)
        self._spool_limit = engine.spool_limit if are_plain else engine.disk_limit // 2
        self._claims = claims
        self._tables = tables
        self._access = access
        self._bindings = bindings
        self._open_views = open_views
        self._numbers = count(1)  # of the directories

    def start_loading(self, file_prefixes: Sequence[str]) -> "TransactionLoads":
        """Begin to gather the Loads of one transaction. `file_prefixes` has the prefix of each table's files."""
        from connector.session.loads import SearchedTable, TransactionLoads  # only for standard updates

        layouts = self._make_layouts(file_prefixes)
        searched = {
            index: SearchedTable(table.binding, layouts[index], partial(self._find_view, table))
            for index, table in enumerate(self._tables)
            if table.binding.updates
        }
        directory = self._engine.directories.files / f"loads-{next(self._numbers)}"
        return TransactionLoads(self._engine.spark, directory, searched, self._bindings)

    def _find_view(self, table: BoundTable) -> "TableView":
        return self._open_views().find((table.binding.path, table.table_uuid), table.writer, table.binding.keys)

    def start_writing(self, file_prefixes: Sequence[str], row_ids: Mapping[int, Source]) -> WriteJob:
        """Start the job of one transaction. `file_prefixes` has the prefix of each table's data files, `row_ids` say by
        binding where the ids of loaded keys are."""
        layouts = self._make_layouts(file_prefixes)
        for index, source in row_ids.items():
            layouts[index] = partial(_add_row_ids, layouts[index], source)
        bound, rejected = layouts[: self._bindings], layouts[self._bindings :]
        directory = self._engine.directories.files / f"spool-{next(self._numbers)}"
        spool = Spool(directory, limit=self._spool_limit)
        spark = self._engine.spark
        return WriteJob(spark, self._claims, spool, choose_transfer(spark, bound), bound, rejected)

    def _limit_runs(self) -> int:
        """Return how many bytes of sorted runs a task may have on the disk: all tasks as many as the spool."""
        return self._spool_limit // self._engine.spark.cores

    def _make_layouts(self, file_prefixes: Sequence[str]) -> list[Layout]:
        """Return the layout of each table. The layout of a binding includes the layout of its rejected rows."""
        tables = zip(self._tables, file_prefixes, self._access, strict=True)
        layouts: list[Layout] = [partial(_make_layout, *table, self._limit_runs) for table in tables]
        return [
            partial(_add_rejected, layout, layouts[table.quarantine.table]) if table.quarantine else layout
            for table, layout in zip(self._tables, layouts, strict=True)
        ]


def _make_layout(
    table: BoundTable, file_prefix: str, access: Refreshed[Properties], limit_runs: Callable[[], int]
) -> TableLayout:
    layout = TableLayout(
        table.binding, table.location, table.properties, file_prefix, access.current(), table.arrangement
    )
    return layout if layout.arrangement.is_plain else replace(layout, run_limit=limit_runs())


def _add_row_ids(layout: Layout, source: Source) -> TableLayout:
    return replace(layout(), row_ids=source)


def _add_rejected(layout: Layout, rejected: Layout) -> TableLayout:
    return replace(layout(), rejected=rejected())
