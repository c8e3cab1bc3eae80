"""One process of the connector: the shipped session over a simulated catalog, with writers that need no Spark."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyiceberg.exceptions import NoSuchTableError, RESTError

from connector.host.errors import ConnectorError
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits import commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_orphan_files import remove_orphan_files
from connector.iceberg.metadata.manifests import WrittenLists
from connector.iceberg.metadata.references import SessionEndedError
from connector.model.binding import Policy
from connector.model.invalid_values import OnInvalid, Tally, Treated, Treatment
from connector.model.state import ChainId, DataFile, StagedCommit, StagedTransaction
from connector.model.state_reader import read_state
from connector.session import recovery, transactions
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.loads import TransactionLoads
from connector.spark.write_job import WriteJob, Written
from protocol.request import Open, StartCommit, Store
from simulation.actors import Actor
from simulation.catalog import SimulatedCatalog
from simulation.network import Network
from simulation.store import StoreIO
from simulation.takeovers import Author
from simulation.task import TASK, Row, RuntimeSession

EXPIRIES: Final = 2
RETRIES: Final = 5
INVALID: Final = "invalid"  # ends the name of a row that its table does not take
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

    def run(self, actor: Actor) -> None:
        session, staged = self._open(actor), StagedTransaction()
        for number in range(self.planned):
            self._acknowledge(actor, session, staged)
            actor.sleep(actor.stage.random.uniform(0, actor.stage.random.choice((1, 10, 400))))
            staged = self._transaction(actor, session.begin(), number)
        if self.acknowledges_last:
            self._acknowledge(actor, session, staged)

    def _acknowledge(self, actor: Actor, session: transactions.Session, staged: StagedTransaction) -> None:
        if self._interruption:
            raise self._interruption
        self.session.acknowledged(actor, session.acknowledge(staged).patch)

    def _open(self, actor: Actor) -> transactions.Session:
        catalog, key_range = SimulatedCatalog(actor, self.network, self.author), self.author.key_range
        self._staged = recovery.find_overlapping(read_state(TASK, self.message.state), key_range)
        committer = Committer(partial(self._attempt, partial(SnapshotWriter, WrittenLists())), LIMIT)
        recovered = recovery.recover(self._staged, committer, partial(self._bind, catalog))
        self._tables = recovered.tables
        write_job = partial(self._write_job, actor)
        session = transactions.Session(recovered.tables, recovered.commits, committer, write_job, _no_loads)
        if actor.stage.chance(self.network.weather.retrying):
            actor.stage.enter(Actor(actor.stage, f"{actor.name} retries", partial(self._retry, actor, committer)))
        if actor.stage.chance(self.network.weather.collecting):
            actor.stage.enter(Actor(actor.stage, f"{actor.name} orphans", partial(self._collect, actor)))
            actor.stage.enter(Actor(actor.stage, f"{actor.name} expiry", partial(self._expire, actor)))
        return session

    def _attempt(
        self, new_writer: Callable[[], SnapshotWriter], staged: Sequence[StagedCommit], *, once: Collection[ChainId]
    ) -> Sequence[commit.Landed | commit.Failed]:
        """Transactions and retries commit in threads of their own."""
        assert Actor.present
        catalog = SimulatedCatalog(Actor.present, self.network, self.author)
        return commit.try_commits(catalog, staged, once, new_writer)

    def _retry(self, owner: Actor, committer: Committer, actor: Actor) -> None:
        """The thread that retries what waits, when it is due. A slow one lingers after its process."""
        backlog = committer._backlog
        for _ in range(RETRIES):
            actor.wait_for(lambda: owner.is_done or backlog.next_due is not None)
            if owner.is_done:
                return
            assert backlog.next_due is not None
            actor.sleep(max(backlog.next_due - actor.stage.now, 0.0))
            try:
                committer.retry()
            except ConnectorError as error:
                self._interruption = error
                return

    def _bind(self, catalog: SimulatedCatalog) -> Sequence[BoundTable]:
        task = self.message.materialization
        policies = [Policy(OnInvalid(binding.resource_config["on_invalid"])) for binding in task.bindings]
        tables = bind_all(catalog, task, self.author.key_range, policies)
        for table in tables:
            self.network.takeovers.opens(self.author, table.table_uuid, catalog.read[table.binding.path], self._staged)
        return tables

    def _write_job(self, actor: Actor, prefixes: Sequence[str]) -> WriteJob:
        return SimulatedWriting(actor, self.network.store_of(actor), self._tables, prefixes)

    def _collect(self, owner: Actor, actor: Actor) -> None:
        """The thread that deletes what earlier sessions left behind: a slow one knows nothing of what came since."""
        actor.sleep(actor.stage.random.choice((0.0, 0.0, 10.0, 400.0)))
        catalog = SimulatedCatalog(actor, self.network, self.author)
        actor.wait_for(lambda: not self.network.is_resetting)
        self.network.deleting += 1
        try:
            for table in self._tables:
                with suppress(SessionEndedError, NoSuchTableError, RESTError, OSError):
                    remove_orphan_files(catalog, table.binding.path, table.writer, self._staged, lambda: owner.is_done)
        finally:
            self.network.deleting -= 1

    def _expire(self, owner: Actor, actor: Actor) -> None:
        """The same thread's other work, when commits have landed. It too may linger after its process."""
        catalog = SimulatedCatalog(actor, self.network, self.author)
        for _ in range(EXPIRIES):
            actor.sleep(actor.stage.random.choice((0.0, 10.0, 100.0)))
            for table in self._tables:
                with suppress(SessionEndedError, NoSuchTableError, RESTError, OSError):
                    expire_snapshots(catalog, table.binding.path, lambda: owner.is_done)

    def _transaction(self, actor: Actor, transaction: transactions.OpenTransaction, number: int) -> StagedTransaction:
        rows: list[Row] = []
        for index, table in enumerate(self._tables[: len(self.message.materialization.bindings)]):
            if self.session.is_last or actor.stage.chance(0.8):
                row = f"{actor.name}-{number}"
                transaction.store(Store(index, 0, 1, (row.encode(),)))
                rows.append((table.binding.path, table.table_uuid, row))
            if table.quarantine and (self.session.is_last or actor.stage.chance(0.8)):
                row, rejected = f"{actor.name}-{number}-{INVALID}", self._tables[table.quarantine.table]
                transaction.store(Store(index, 0, 1, (row.encode(),)))
                rows.append((rejected.binding.path, rejected.table_uuid, row))
        staged = transaction.start_commit(StartCommit({"at": number}))
        self.network.takeovers.stages(self.author, staged.commits)
        by_path = {row[0]: row for row in rows}
        self.network.staged |= {commit.next: by_path[commit.path] for commit in staged.commits}
        self.session.started_commit(actor, staged.patch, rows)
        return staged


def _no_loads(_: Sequence[str]) -> TransactionLoads:
    raise AssertionError("the simulated bindings have delta updates")


class SimulatedWriting(WriteJob):
    """A data file holds its rows' names, nothing else."""

    def __init__(self, actor: Actor, store: StoreIO, tables: Sequence[BoundTable], prefixes: Sequence[str]) -> None:
        self._store, self._tables = store, tables
        self._locations = [
            f"{table.location}/data/{prefix}-{actor.stage.uuid()}.parquet"
            for table, prefix in zip(tables, prefixes, strict=True)
        ]
        self._rows: dict[int, list[bytes]] = {}
        self._treated: dict[int, Tally] = defaultdict(Tally)

    def add(self, store: Store) -> None:
        quarantine = self._tables[store.binding].quarantine
        for row in map(bytes, store.pieces):
            is_invalid = quarantine and row.endswith(INVALID.encode())
            self._rows.setdefault(quarantine.table if quarantine and is_invalid else store.binding, []).append(row)
            self._treated[store.binding].add("value_0", Treatment.REJECTED, Treated(int(bool(is_invalid))))

    def finish(self) -> Written:
        return Written({table: (self._write(table, rows),) for table, rows in self._rows.items()}, self._treated)

    def _write(self, table: int, rows: Sequence[bytes]) -> DataFile:
        location, content = self._locations[table], b"\n".join(rows)
        with self._store.new_output(location).create() as file:
            file.write(content)
        return DataFile(location, len(rows), len(content), (4,), ())
