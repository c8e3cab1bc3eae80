"""A session of transactions: open, then store, stage and commit, over and over.

A transaction's phases are types. An OpenTransaction takes rows; its start_commit makes them durable and leaves staged
commits, which are values: the same acknowledge finishes them now, again, or in a successor that has only the state.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import orjson

from connector import state
from connector.backlog import Limit
from connector.committer import Committer
from connector.config.settings import EndpointConfig, ResourceConfig, Settings
from connector.errors import UserError
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.catalogs.opening import explained, open_catalog, renewed_access
from connector.iceberg.cleaning.maintenance import maintaining
from connector.iceberg.commits import fence
from connector.iceberg.commits.fence import Tenure
from connector.iceberg.commits.file_names import file_prefix
from connector.invalid_values import Policy, Tally
from connector.predecessor import check_nothing_is_staged
from connector.progress import TransactionProgress, TreatmentWarnings
from connector.rejection_limit import RejectionLimit
from connector.renewal import Renewed
from connector.spark.claim_server import claim_server
from connector.spark.engine import Engine
from connector.spark.handover import handover_to
from connector.spark.layout import Layout, TableLayout
from connector.spark.writing import Writing, Written
from connector.staging import Spool
from connector.state import DataFile, FileList, LandedTransaction, StagedCommit, StagedTransaction
from protocol import request
from protocol.flow import WHOLE_RANGE, Materialization

StartWriting: TypeAlias = Callable[[Sequence[str]], Writing]  # given the data files' prefixes, by table

V2_LABEL: Final = "estuary.dev/flag/enable-runtime-v2"


class Session:
    """The bound tables of one shard, and what each one's next transaction is staged on."""

    def __init__(
        self,
        tables: Sequence[BoundTable],
        recovered: Sequence[StagedCommit],
        committer: Committer,
        start_writing: StartWriting,
    ) -> None:
        self._tables = tables
        self._recovered = tuple(recovered)
        self._committer = committer
        self._start_writing = start_writing
        self._tenures = [_tenure(table, committer) for table in tables]
        self._numbers = count(1)
        self._limits = {
            table.binding.index: RejectionLimit(table.binding.table, table.quarantine.max_ratio)
            for table in tables
            if table.quarantine
        }
        self._warnings = TreatmentWarnings([table.binding.table for table in tables])

    @property
    def tables(self) -> Sequence[BoundTable]:
        return self._tables

    def begin(self) -> "OpenTransaction":
        return OpenTransaction(next(self._numbers), self._write, self._stage)

    def acknowledge(self, staged: StagedTransaction) -> LandedTransaction:
        """Make a transaction of this session part of its tables; the first time, tell what open has recovered."""
        landed = LandedTransaction((*self._recovered, *self._committer.commit(staged.commits)))
        self._recovered = ()
        return landed

    def _write(self) -> Writing:
        tables = zip(self._tables, self._tenures, strict=True)
        return self._start_writing(
            [file_prefix(table.lineage, table.table_uuid, tenure.in_file_names) for table, tenure in tables]
        )

    def _stage(self, written: Written, checkpoint: str) -> StagedTransaction:
        """Draw the next fence value of every table that got files."""
        commits = {index: self._stage_table(index, files, checkpoint) for index, files in sorted(written.files.items())}
        for index, limit in self._limits.items():
            landing = commits[index].rows if index in commits else 0
            limit.check(landing, written.treated.get(index, Tally()))
        self._warnings.warn(written.treated)
        return StagedTransaction(tuple(commits.values()))

    def _stage_table(self, index: int, files: tuple[DataFile, ...] | FileList, checkpoint: str) -> StagedCommit:
        table, tenure = self._tables[index], self._tenures[index]
        staged = StagedCommit(
            lineage=table.lineage,
            prev=tenure.prev,
            next=fence.new_value(tenure.prev),
            path=table.binding.path,
            table_uuid=table.table_uuid,
            spec_id=table.spec_id,
            schema_id=table.schema_id,
            files=files,
            checkpoint=checkpoint,
            known=tenure.known,
        )
        self._tenures[index] = tenure.after(staged)
        return staged


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
            return StagedTransaction()
        checkpoint = hashlib.sha256(orjson.dumps(message.runtime_checkpoint)).hexdigest()[:16]
        written = self._writing.finish()
        staged = self._stage(written, checkpoint)
        self._progress.staged(staged.commits, written.treated.values())
        return staged


def _tenure(table: BoundTable, committer: Committer) -> Tenure:
    waiting = committer.waiting((table.binding.path, table.table_uuid), table.lineage.key_range)
    return Tenure.begin(dict(table.properties), table.lineage, waiting)


@contextmanager
def open_session(
    message: request.Open, config: EndpointConfig, resource_configs: Sequence[ResourceConfig], engine: Engine
) -> Iterator[Session]:
    """A session on an engine that may still be starting."""
    task, key_range = message.materialization, _key_range(message)
    check_nothing_is_staged(message.state, (binding.state_key for binding in task.bindings))
    staged = overlapping(state.entries(task.name, message.state), key_range)
    with ExitStack() as resources:
        spark, directories = engine.spark, engine.directories
        claims = resources.enter_context(closing(claim_server(dict(config.spark), directories.sockets / "claims")))
        catalog = open_catalog(config)
        spools = count(1)

        def writing(tables: Sequence[BoundTable]) -> StartWriting:
            access = [renewed_access(catalog, config, table.binding.path, table.access) for table in tables]

            def start_writing(file_prefixes: Sequence[str]) -> Writing:
                layouts = _layouts(tables, file_prefixes, access)
                bindings = len(task.bindings)
                spool = Spool(directories.files / f"spool-{next(spools)}", limit=engine.spool_limit)
                handover = handover_to(spark, layouts[:bindings])
                return Writing(spark.run, claims, spool, handover, layouts[:bindings], layouts[bindings:])

            return start_writing

        maintenance = resources.enter_context(maintaining(catalog))
        committer = Committer(maintenance.attempt, Limit(config.max_waiting_commits, config.max_waiting_bytes))
        with explained(config):
            policies = [Policy(resource.on_invalid, resource.max_rejected_ratio) for resource in resource_configs]
            bind = partial(bind_all, catalog, task, key_range, policies)
            session = recover(staged, committer, bind, writing)
        maintenance.look_after(session.tables, staged)
        yield session


def _layouts(
    tables: Sequence[BoundTable], file_prefixes: Sequence[str], access: Sequence[Renewed[Settings]]
) -> list[Layout]:
    """Every table's, the bindings' with those of their rejected rows."""
    layouts: list[Layout] = [partial(_layout, *table) for table in zip(tables, file_prefixes, access, strict=True)]
    return [
        partial(_layout_with_rejected, layout, layouts[table.quarantine.table]) if table.quarantine else layout
        for table, layout in zip(tables, layouts, strict=True)
    ]


def _layout(table: BoundTable, file_prefix: str, access: Renewed[Settings]) -> TableLayout:
    return TableLayout(table.binding, table.location, table.properties, file_prefix, access.current())


def _layout_with_rejected(layout: Layout, rejected: Layout) -> TableLayout:
    return replace(layout(), rejected=rejected())


def recover(
    staged: Sequence[StagedCommit],
    committer: Committer,
    bind: Callable[[], Sequence[BoundTable]],
    writing: Callable[[Sequence[BoundTable]], StartWriting],
) -> Session:
    """First finishes what earlier sessions staged, then reads every bound table's fence: a value is only this session's
    own once nothing that is still to land can move it."""
    recovered = committer.commit(staged)
    tables = bind()
    _check_recovered(tables, committer)
    return Session(tables, recovered, committer, writing(tables))


def overlapping(staged: Iterable[StagedCommit], key_range: str) -> list[StagedCommit]:
    """What of the state is ours to finish: its key range overlaps ours, its binding may be gone."""
    return [commit for commit in staged if commit.lineage.overlaps(key_range)]


def _check_recovered(tables: Sequence[BoundTable], committer: Committer) -> None:
    """A bound table that could not be recovered may wait for better times, but not for ever: a table that was replaced
    will never take what was staged for the old one."""
    for table in tables:
        error = committer.error_of((table.binding.path, table.lineage))
        if isinstance(error, UserError):
            raise error


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
