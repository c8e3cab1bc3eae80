"""A session's transactions. Each one receives rows, stages them, and is committed after the runtime's log has it.

The phases of a transaction are types. An OpenTransaction receives rows. Its `start_commit` makes the rows durable and
returns staged commits, which are values. `acknowledge` commits them; to repeat it does no harm. A later session can
commit them too, because the connector state names them.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from connector.host.threads import call_within
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence, file_prefix
from connector.model.invalid_values import Tally
from connector.model.state import DataFile, FileList, ReportedCommits, StagedCommit, StagedTransaction
from connector.session.committer import Committer
from connector.session.progress import TransactionProgress
from connector.session.transaction_jobs import TransactionJobs
from connector.session.treatments import RejectionLimit, TreatmentWarnings
from connector.spark.jobs.write_job import WriteJob, Written
from protocol import request
from protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from connector.session.loads import LoadedRows, TransactionLoads

log = logging.getLogger(__name__)

LONGEST_DISCARD: Final = 5.0  # seconds
LONGEST_OFFSETS: Final = 1_000  # characters; each snapshot of a table keeps its own


class Session:
    """The bound tables of one shard, and for each the fence value on which its next transaction is based."""

    def __init__(
        self,
        tables: Sequence[BoundTable],
        recovered: Sequence[StagedCommit],
        committer: Committer,
        jobs: TransactionJobs,
    ) -> None:
        self._tables = tables
        self._chain_ids = frozenset(table.chain_id for table in tables)
        self._recovered = tuple(recovered)
        self._committer = committer
        self._jobs = jobs
        self._fences = [_begin_fence(table, committer) for table in tables]
        self._numbers = count(1)
        self._limits = {
            table.binding.index: RejectionLimit(table.binding.table, table.quarantine.max_ratio)
            for table in tables
            if table.quarantine
        }
        self._names = [table.binding.table for table in tables]
        self._warnings = TreatmentWarnings(self._names)

    def begin(self) -> "OpenTransaction":
        """Return a new transaction without rows."""
        progress = TransactionProgress(next(self._numbers), self._names)
        return OpenTransaction(progress, self._jobs, self._file_prefixes(), self._stage)

    def acknowledge(self, staged: StagedTransaction) -> ReportedCommits:
        """Commit a transaction of this session. The first call also reports the commits of the recovery.

        Raises UserError if too much is pending for a table.
        """
        reported = ReportedCommits((*self._recovered, *self._committer.commit(staged.commits)))
        self._committer.check_limit(self._chain_ids)
        self._recovered = ()
        if staged.commits:
            self._committer.log_running()
        return reported

    def _file_prefixes(self) -> list[str]:
        tables = zip(self._tables, self._fences, strict=True)
        return [
            file_prefix(table.writer, table.table_uuid, writer_fence.in_file_names) for table, writer_fence in tables
        ]

    def _stage(
        self, written: Written, found: "Mapping[int, LoadedRows]", message: request.StartCommit
    ) -> StagedTransaction:
        """Return a staged commit for each table that got files or loses rows. Each draws its table's next fence
        value."""
        self._check_updates(written, found)
        digest = message.digest_checkpoint()
        offsets = message.describe_offsets(LONGEST_OFFSETS)
        commits = {
            index: self._stage_table(index, written.files.get(index, ()), found.get(index), digest, offsets)
            for index in sorted({*written.files, *_find_updated(found)})
        }
        for index, limit in self._limits.items():
            accepted = commits[index].rows if index in commits else 0
            limit.check(accepted, written.treated.get(index, Tally()))
        if written.treated:
            self._warnings.warn(written.treated)
        return StagedTransaction(tuple(commits.values()))

    def _check_updates(self, written: Written, found: "Mapping[int, LoadedRows]") -> None:
        """Raise ProtocolError unless the keys that were stored with `exists` are those whose rows are replaced. A key
        without a Load would get a second row."""
        updated = [table.binding for table in self._tables if table.binding.updates]
        if not updated:
            return
        from connector.encoding.lines.key_digest import KeyDigest, digest_hashes  # only for standard updates

        for binding in updated:
            rows, stored = found.get(binding.index), written.existing_keys.get(binding.index, ())
            if digest_hashes(stored) != (rows.answered if rows else KeyDigest()):
                raise ProtocolError(
                    f"table {binding.table}: the runtime stored {sum(map(len, stored))} documents with `exists`. Each "
                    "of their keys must be loaded and found in the same transaction, and stored once. Nothing of this "
                    "transaction has become visible. A runtime of Flow does not do this: report it."
                )

    def _stage_table(
        self,
        index: int,
        files: tuple[DataFile, ...] | FileList,
        found: "LoadedRows | None",
        checkpoint: str,
        offsets: Mapping[str, str],
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
            updates=table.binding.updates,
            offsets=offsets.get(table.writer.state_key, ""),
        )
        self._fences[index] = writer_fence.after(staged)
        return staged


class OpenTransaction:
    """Receives Loads until they are answered, then rows until they are staged. The search starts with the end of the
    Loads, and the write job with their last answer: its tasks wait for the first row.

    If its block ends before it is staged, the transaction is discarded: its files show the table's present fence value,
    so no later session could tell them from others before the next commit.
    """

    def __init__(
        self,
        progress: TransactionProgress,
        jobs: TransactionJobs,
        file_prefixes: Sequence[str],
        stage: "Callable[[Written, Mapping[int, LoadedRows], request.StartCommit], StagedTransaction]",
    ) -> None:
        self._progress = progress
        self._jobs = jobs
        self._file_prefixes = file_prefixes
        self._stage = stage
        self._loads: TransactionLoads | None = None
        self._writing: WriteJob | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writing or self._loads:
            try:
                call_within(LONGEST_DISCARD, self._discard)  # the store itself may have failed, and the process ends
            except Exception as error:  # noqa: BLE001 - it must not hide why the transaction was not staged
                said = f"{type(error).__name__}: {error}".removesuffix(": ")
                log.warning("files of a transaction that was not staged may be left in the object store: %s", said)

    def load(self, loads: request.Load) -> None:
        """Receive a run of Loads. They are answered when all of them are there."""
        if self._loads is None:
            self._loads = self._jobs.start_loading(self._file_prefixes)
        self._loads.add(loads)

    def answer_loads(self, message: request.Flush) -> Iterator[bytes]:
        """Yield the text of the answers to all Loads, part by part."""
        self._progress.report_outdated(message.backfill_completes)
        if self._loads:
            flushed = time.monotonic()
            self._progress.report_loading(self._loads.count)
            yield from self._loads.answer()
            found = sum(each.answered.count for each in self._loads.found.values())
            self._progress.report_loaded(self._loads.count, found, self._loads.began, flushed)
        self._writing = self._jobs.start_writing(self._file_prefixes, self._loads.row_ids if self._loads else {})

    def store(self, rows: request.Store) -> None:
        """Receive a run of rows. Raises the error that stopped the writing of earlier rows, or of what Loads found."""
        if self._loads:
            self._loads.check()
        self._write_job.add(rows)
        self._progress.report_received(rows)

    def start_commit(self, message: request.StartCommit) -> StagedTransaction:
        """Make all rows durable outside this process, and return the staged commits."""
        self._progress.end_received()
        found = self._loads.found if self._loads else {}
        written = self._write_job.finish()
        if self._loads:
            self._loads.stage(written)
            self._loads.close()
        staged = self._stage(written, found, message)
        self._progress.report_staged(staged.commits, written.treated)
        self._writing = self._loads = None  # their files have a name in the state from now on
        return staged

    def _discard(self) -> None:
        """Delete all that was written. No answer has named it."""
        try:
            if self._writing:
                self._writing.discard()
        finally:
            if self._loads:
                self._loads.discard()

    @property
    def _write_job(self) -> WriteJob:
        assert self._writing, "Loads are answered first, even if there are none"
        return self._writing


def _find_updated(found: "Mapping[int, LoadedRows]") -> list[int]:
    """Return the bindings whose tables lose rows."""
    return [index for index, rows in found.items() if rows.located.rows]


def _begin_fence(table: BoundTable, committer: Committer) -> WriterFence:
    pending = committer.find_pending(table.table_id, table.writer.key_range)
    return WriterFence.begin(table.properties, table.writer, pending)
