"""One process of the connector: the shipped session over a simulated catalog, with writers that need no Spark."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from types import SimpleNamespace
from typing import Any, Final

from pyiceberg.exceptions import NoSuchTableError, RESTError

from connector.host.errors import ConnectorError
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Committed, Outcome, Tell
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_plan import plan_compaction
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.expired_files import UnfinishedExpiryError
from connector.iceberg.maintenance.rearrangement_plan import plan_rearrangement
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.session_views import SessionViews
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import RowSettings, UpdateMode
from connector.model.invalid_values import OnInvalid
from connector.model.state import ChainId, StagedCommit, StagedTransaction
from connector.model.state_reader import read_finished, read_state
from connector.session import recovery, transactions
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.spark.jobs.write_job import WriteJob
from connector.storage.stored_files import delete_all
from protocol.request import Open, StartCommit
from simulation.actors import Actor
from simulation.catalog import SimulatedCatalog
from simulation.compacting import LONG, compact, end_after
from simulation.network import Network
from simulation.searching import loading_jobs
from simulation.source import Source
from simulation.takeovers import Author
from simulation.task import TASK, RuntimeSession
from simulation.weather import Climate
from simulation.writing import SimulatedWriting

COMPACTIONS: Final = 4
EXPIRIES: Final = 2
RETRIES: Final = 5
LATE: Final = 10.0  # seconds
LIMIT: Final = Limit(commits=1000, size=1 << 40)


@dataclass
class Instance:
    """A shard of a session, from open to its end."""

    author: Author
    message: Open
    session: RuntimeSession
    network: Network
    planned: int  # transactions
    acknowledges_last: bool
    _tables: Sequence[BoundTable] = field(default=(), init=False)
    _staged: Sequence[StagedCommit] = field(default=(), init=False)
    _interruption: Exception | None = field(default=None, init=False)  # an error that a retry has met
    _used: set[str] = field(default_factory=set, init=False)  # objects of located rows that commits have used

    def run(self, actor: Actor) -> None:
        session, staged = self._open(actor), StagedTransaction()
        for number in range(self.planned):
            self._acknowledge(actor, session, staged)
            actor.sleep(actor.stage.random.uniform(0, actor.stage.random.choice((1, 10, 400))))
            if actor.stage.chance(self.network.weather.idling):
                actor.sleep(LONG)
            staged = self._transaction(actor, session, number)
        if self.acknowledges_last:
            self._acknowledge(actor, session, staged)

    def _acknowledge(self, actor: Actor, session: transactions.Session, staged: StagedTransaction) -> None:
        if self._interruption:
            raise self._interruption
        self.session.acknowledged(actor, session.acknowledge(staged).patch)

    def _open(self, actor: Actor) -> transactions.Session:
        catalog, key_range = SimulatedCatalog(self.network, self.author), self.author.key_range
        actor.catalog = catalog
        self._staged = recovery.select_overlapping_commits(read_state(TASK, self.message.state), key_range)
        actor.store = self.network.open_store()
        manifests = ManifestCache()
        attempt = partial(self._attempt, manifests)
        committer = Committer(attempt, LIMIT, [self._note_used])
        recovered = recovery.recover(self._staged, committer, partial(self._bind, catalog))
        recovery.check_names(recovered.tables, [False] * len(self.message.materialization.bindings))
        recovery.check_finished(recovered.tables, read_finished(TASK, self.message.state), self._staged)
        self._tables = recovered.tables
        for table in self._tables:
            committer.fences.note_opened(table.table_id, table.properties, table.writer)
        generations = {table.table_id: table.generations for table in self._tables}
        views = SessionViews(catalog, ViewFactory(manifests), committer.find_pending, committer.fences, generations)
        start_loading = loading_jobs(recovered.tables, views).start_loading
        jobs: Any = SimpleNamespace(start_loading=start_loading, start_writing=partial(self._write_job, actor))
        session = transactions.Session(recovered.tables, recovered.commits, committer, jobs)
        if actor.stage.chance(self.network.weather.retrying):
            actor.stage.enter(Actor(actor.stage, f"{actor.name} retries", partial(self._retry, actor, committer)))
        if actor.stage.chance(self.network.weather.compacting):
            self._start_compaction(actor, manifests)
        if actor.stage.chance(self.network.weather.collecting):
            actor.stage.enter(Actor(actor.stage, f"{actor.name} orphans", partial(self._collect, actor)))
            actor.stage.enter(Actor(actor.stage, f"{actor.name} expiry", partial(self._expire, actor)))
            if any(table.binding.updates for table in recovered.tables):
                actor.stage.enter(Actor(actor.stage, f"{actor.name} used", partial(self._remove_used, actor)))
        return session

    def _attempt(
        self,
        manifests: ManifestCache,
        staged: Sequence[StagedCommit],
        *,
        without_retry: Collection[ChainId],
        tell: Tell,
    ) -> None:
        """Transactions and retries commit in threads of their own."""
        catalog = SimulatedCatalog(self.network, self.author)
        # No lock keeps them from meeting the conflicts of other processes.
        commit.try_commits(catalog, staged, without_retry, SnapshotWriters(manifests), tell=tell)

    def _note_used(self, outcome: Outcome) -> None:
        if isinstance(outcome, Committed):
            self._used.update(outcome.commit.located)

    def _retry(self, owner: Actor, committer: Committer, actor: Actor) -> None:
        """The thread that retries what waits, when it is due. A slow one lingers after its process."""
        backlog = committer._backlog
        for _ in range(RETRIES):
            actor.wait_for(lambda: owner.is_done or backlog.next_due is not None)
            if owner.is_done:
                return
            assert backlog.next_due is not None
            is_late = self.network.weather.climate is Climate.OUTAGES  # then all tables are due
            actor.sleep(max(backlog.next_due - actor.stage.now, 0.0) + (LATE if is_late else 0.0))
            try:
                committer.retry()
            except ConnectorError as error:
                self._interruption = error
                return

    def _bind(self, catalog: SimulatedCatalog) -> Sequence[BoundTable]:
        task = self.message.materialization
        updates = UpdateMode.HARD_DELETE if task.config["hard_delete"] else UpdateMode.KEEP_DELETED
        settings = [
            RowSettings(
                OnInvalid(binding.resource_config["on_invalid"]),
                updates=UpdateMode.DELTA if binding.resource_config["delta_updates"] else updates,
            )
            for binding in task.bindings
        ]
        tables = bind_all(catalog, task, self.author.key_range, settings)
        for table in tables:
            self.network.takeovers.opens(self.author, table.table_uuid, catalog.read[table.binding.path], self._staged)
        return tables

    def _write_job(self, actor: Actor, prefixes: Sequence[str], _row_ids: object) -> WriteJob:
        return SimulatedWriting(actor, self.network.open_store(), self._tables, prefixes)

    def _collect(self, owner: Actor, actor: Actor) -> None:
        """The thread that deletes what earlier sessions left behind: a slow one knows nothing of what came since."""
        actor.sleep(actor.stage.random.choice((0.0, 0.0, 10.0, 400.0)))
        catalog = SimulatedCatalog(self.network, self.author)
        actor.wait_for(lambda: not self.network.is_resetting)
        self.network.deleting += 1
        try:
            for table in self._tables:
                with suppress(InterruptedMaintenanceError, NoSuchTableError, RESTError, OSError):
                    remove_task_orphans(
                        catalog, table.binding.path, table.writer, self._staged, Interruption(lambda: owner.is_done)
                    )
        finally:
            self.network.deleting -= 1

    def _start_compaction(self, owner: Actor, manifests: ManifestCache) -> None:
        """The thread that compacts the session's tables. It may end at any time, and it may linger after its
        process."""
        stage = owner.stage
        compacting = Actor(
            stage, f"{owner.name} compacts", partial(self._compact, owner, manifests), clock_skew=owner.clock_skew
        )
        stage.enter(compacting)
        if stage.chance(0.3):
            stage.enter(Actor(stage, f"{owner.name} ends", end_after(stage.random.uniform(0, 30), compacting)))

    def _compact(self, owner: Actor, manifests: ManifestCache, actor: Actor) -> None:
        catalog = SimulatedCatalog(self.network, self.author)
        actor.store = self.network.open_store()
        write = partial(compact, partial(self._wait_for_commit, owner))
        plans = (plan_compaction, plan_rearrangement)
        compactors = [
            TableCompactor(catalog, write, catalog.load_table, SnapshotWriters(manifests), plan=plan) for plan in plans
        ]
        for compactor in islice(cycle(compactors), COMPACTIONS):
            self._wait_for_commit(owner, actor)
            for table in self._tables:
                with suppress(InterruptedMaintenanceError, NoSuchTableError, ConnectorError, RESTError, OSError):
                    compactor.compact(table.binding.path, interruption=Interruption(lambda: owner.is_done))

    def _wait_for_commit(self, owner: Actor, actor: Actor) -> None:
        """Wait until somebody has committed to a table of the session, or until the session is over."""
        tables, paths = self.network.lake.tables, [table.binding.path for table in self._tables]

        def current() -> list[int | None]:
            return [tables[path].current_snapshot_id if path in tables else None for path in paths]

        before = current()
        actor.wait_for(lambda: owner.is_done or before != current())

    def _expire(self, owner: Actor, actor: Actor) -> None:
        """The same thread's other work, when commits have landed. It too may linger after its process."""
        catalog = SimulatedCatalog(self.network, self.author)
        for _ in range(EXPIRIES):
            actor.sleep(actor.stage.random.choice((0.0, 10.0, 100.0)))
            for table in self._tables:
                with suppress(InterruptedMaintenanceError, NoSuchTableError, RESTError, OSError, UnfinishedExpiryError):
                    expire_snapshots(catalog, table.binding.path, Interruption(lambda: owner.is_done))

    def _remove_used(self, owner: Actor, actor: Actor) -> None:
        """And the same thread's third: located rows that commits have used."""
        store = self.network.open_store()
        for _ in range(EXPIRIES):
            actor.wait_for(lambda: bool(self._used) or owner.is_done)
            actor.sleep(actor.stage.random.choice((0.0, 0.0, 10.0)))
            used, self._used = self._used, set()
            with suppress(OSError):
                delete_all(store, used)

    def _transaction(self, actor: Actor, session: transactions.Session, number: int) -> StagedTransaction:
        source = Source(actor, self.network, self.session, self._tables, f"{actor.name}-{number}")
        transaction = session.begin()
        bindings = len(self.message.materialization.bindings)
        rows = source.send(transaction, bindings, loads_all=any(table.may_have_other_rows for table in self._tables))
        staged = transaction.start_commit(StartCommit({"at": number}))
        self.network.takeovers.stages(self.author, staged.commits)
        self.network.staged |= {
            commit.next: [row for row in rows if row[0] == commit.path] for commit in staged.commits
        }
        self.session.started_commit(actor, staged.patch, rows)
        return staged
