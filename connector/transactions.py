"""A session of transactions: open, then store, stage and commit, over and over.

A transaction's phases are types. An OpenTransaction takes rows; its start_commit makes them durable and leaves staged
commits, which are values: the same acknowledge finishes them now, again, or in a successor that has only the state.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final, Protocol

import orjson

from connector import state
from connector.config import parse
from connector.errors import UserError
from connector.iceberg import commit, fence
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.catalogs import data_file_properties, explained, open_catalog
from connector.logs import FIELDS
from connector.progress import TransactionProgress
from connector.scratch import scratch
from connector.spark.claims import ClaimServer
from connector.spark.layout import TableLayout
from connector.spark.session import Spark
from connector.spark.writing import Writing, Written
from connector.staging import Spool
from connector.state import DataFile, StagedCommit
from protocol import request
from protocol.flow import WHOLE_RANGE, Json, Materialization

log = logging.getLogger(__name__)

V2_LABEL: Final = "estuary.dev/flag/enable-runtime-v2"


@dataclass(frozen=True)
class StagedTransaction:
    """Every table's share of a transaction: durable, and named by state."""

    commits: tuple[StagedCommit, ...]

    @property
    def size(self) -> int:
        """Bytes of data files."""
        return sum(commit.size for commit in self.commits)

    @property
    def added(self) -> Json | None:
        """The patch of `startedCommit`."""
        return state.added(self.commits) if self.commits else None

    @property
    def removed(self) -> Json | None:
        """The patch of `acknowledged`: the tables hold it, so that nobody need finish it."""
        return state.removed(self.commits) if self.commits else None


class Finish(Protocol):
    """Makes staged commits part of their tables, any number of times; see `commit.finish`."""

    def __call__(self, staged: Sequence[StagedCommit], *, is_recovery: bool) -> Sequence[commit.Landed]: ...


class Session:
    """The bound tables of one shard, and the fence value that each one's next transaction is staged on."""

    def __init__(
        self,
        tables: Sequence[BoundTable],
        recovered: StagedTransaction,
        finish: Finish,
        start_writing: Callable[[Sequence[str]], Writing],
    ) -> None:
        self.recovered = recovered
        self._tables = tables
        self._finish = finish
        self._start_writing = start_writing
        self._fences = [table.prev for table in tables]
        self._numbers = count(1)
        self._fields_clamped: set[tuple[int, str]] = set()

    def begin(self) -> "OpenTransaction":
        return OpenTransaction(next(self._numbers), self._write, self._stage)

    def acknowledge(self, staged: StagedTransaction) -> None:
        """Make a transaction of this session part of its tables, whatever of it they hold already."""
        _log_landed("committed", self._finish(staged.commits, is_recovery=False))

    def _write(self) -> Writing:
        numbered = zip(self._tables, self._fences, strict=True)
        return self._start_writing([fence.file_prefix(table.lineage, prev) for table, prev in numbered])

    def _stage(self, written: Written, checkpoint: str) -> StagedTransaction:
        """Draw the next fence value of every table that got files."""
        self._report_clamped(written.clamped)
        return StagedTransaction(
            tuple(self._stage_table(index, files, checkpoint) for index, files in sorted(written.files.items()))
        )

    def _stage_table(self, index: int, files: tuple[DataFile, ...], checkpoint: str) -> StagedCommit:
        table, prev = self._tables[index], self._fences[index]
        self._fences[index] = fence.new_value()
        return StagedCommit(
            lineage=table.lineage,
            prev=prev,
            next=self._fences[index],
            path=table.binding.path,
            table_uuid=table.table_uuid,
            spec_id=table.spec_id,
            schema_id=table.schema_id,
            files=files,
            checkpoint=checkpoint,
        )

    def _report_clamped(self, clamped: Mapping[tuple[int, str], int]) -> None:
        for (index, field), values in clamped.items():
            if (index, field) not in self._fields_clamped:
                self._fields_clamped.add((index, field))
                log.warning(
                    "table %s, field %r: %d date(s) outside the years 1 to 9999 were clamped to the nearest of them; "
                    "this is said once a session",
                    self._tables[index].binding.table,
                    field,
                    values,
                )


class OpenTransaction:
    """Takes rows until they are staged. Spark's job starts with the first of them."""

    def __init__(
        self,
        number: int,
        start_writing: Callable[[], Writing],
        stage: Callable[[Written, str], StagedTransaction],
    ) -> None:
        self._progress = TransactionProgress(number)
        self._start_writing = start_writing
        self._stage = stage
        self._writing: Writing | None = None

    def store(self, rows: request.Store) -> None:
        """Take a run of rows; raises what has stopped the writing of earlier ones."""
        if self._writing is None:
            self._writing = self._start_writing()
        self._writing.add(rows)
        self._progress.received(rows)

    def start_commit(self, message: request.StartCommit) -> StagedTransaction:
        """Return when every row is durable outside this process."""
        if self._writing is None:
            return StagedTransaction(())
        checkpoint = hashlib.sha256(orjson.dumps(message.runtime_checkpoint)).hexdigest()[:16]
        staged = self._stage(self._writing.finish(), checkpoint)
        self._progress.staged(staged.commits)
        return staged


@contextmanager
def open_session(message: request.Open) -> Iterator[tuple[Session, timedelta]]:
    """A session, and its upload interval. First finishes what earlier sessions staged, then reads every bound table's
    fence: a value is only this session's own once nothing that is still to land can move it."""
    task, key_range = message.materialization, _key_range(message)
    config, _ = parse(task.config, [binding.resource_config for binding in task.bindings])
    with ExitStack() as resources:
        directories = resources.enter_context(scratch())
        spark = Spark(dict(config.spark), directories)
        resources.callback(spark.kill)
        claims = resources.enter_context(closing(ClaimServer(directories.sockets / "claims")))
        catalog = open_catalog(config)
        finish = partial(commit.finish, catalog, key_range=key_range)
        recovered = _recover(message, key_range, finish)
        with explained(config):
            tables = bind_all(catalog, task, key_range)
        io_properties = tuple(data_file_properties(config).items())

        spools = count(1)

        def start_writing(file_prefixes: Sequence[str]) -> Writing:
            layouts = [
                TableLayout(table.binding, table.location, table.properties, prefix, io_properties)
                for table, prefix in zip(tables, file_prefixes, strict=True)
            ]
            return Writing(spark, claims, Spool(directories.files / f"spool-{next(spools)}"), layouts)

        yield Session(tables, recovered, finish, start_writing), config.upload_interval


def _recover(message: request.Open, key_range: str, finish: Finish) -> StagedTransaction:
    """Finish every staged commit that the state names and whose key range overlaps ours, bound still or not."""
    staged = tuple(
        entry
        for entry in state.entries(message.materialization.name, message.state)
        if entry.lineage.overlaps(key_range)
    )
    _log_landed("recovered", finish(staged, is_recovery=True))
    return StagedTransaction(staged)


def _key_range(message: request.Open) -> str:
    held = WHOLE_RANGE if message.range is None else message.range
    if (held.r_clock_begin, held.r_clock_end) != (WHOLE_RANGE.r_clock_begin, WHOLE_RANGE.r_clock_end):
        raise UserError("open: the shard holds only part of the r-clock range; split the task by key instead.")
    if held != WHOLE_RANGE and not _runs_on_v2(message.materialization):
        raise UserError(
            f"open: the shard holds only the key range {held.key_range}, and the task's runtime keeps a state of its own "
            f"for each shard. Run the task with one shard, or set its label {V2_LABEL} to true."
        )
    return held.key_range


def _runs_on_v2(task: Materialization) -> bool:
    return any(label.name == V2_LABEL and label.value == "true" for label in task.shard_template.labels.labels)


def _log_landed(verb: str, landed: Sequence[commit.Landed]) -> None:
    for chain in landed:
        log.info(
            "table %s: %s %d rows in %d data file(s), %.2f s",
            ".".join(chain.staged[0].path),
            verb,
            sum(commit.rows for commit in chain.staged),
            sum(len(commit.files) for commit in chain.staged),
            chain.seconds,
            extra={FIELDS: {"attempts": chain.attempts, "bytes": sum(commit.size for commit in chain.staged)}},
        )
