"""The committer of a session, and the threads that maintain tables and post messages after its commits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from connector.config.credentials import AwsIam
from connector.config.endpoint_config import EndpointConfig
from connector.host import facts
from connector.host.errors import RefusedKeysError
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.catalogs.opening import OpenedCatalog, load_opened_table
from connector.iceberg.commits.commit import try_commits
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.loaded_tables import load_table
from connector.iceberg.maintenance.background import BackgroundMaintenance, run_maintenance
from connector.iceberg.maintenance.background_compaction import run_compaction
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.model.state import StagedCommit
from connector.session.backlog import Limit, find_state_limit
from connector.session.commit_facts import report_outcome, report_recovered
from connector.session.committer import ENDING, Committer
from connector.session.recovery import Recovered, recover
from connector.spark.jobs.compaction_job import compact_in
from connector.spark.jvm.spark_session import Spark

if TYPE_CHECKING:
    from connector.notifications.notifier import LoadTable, Notifier


@dataclass(frozen=True)
class SessionThreads:
    """The committer of a session, and the threads that follow its commits."""

    committer: Committer
    manifests: ManifestCache
    maintenance: BackgroundMaintenance
    notifier: "Notifier | None"

    def recover(self, staged: Sequence[StagedCommit], bind: Callable[[], Sequence[BoundTable]]) -> Recovered:
        """Commit what earlier sessions staged, then bind the tables; see `recovery.recover`."""
        report_recovered(staged)
        return recover(staged, self.committer, bind)

    def continue_earlier_work(self, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> None:
        """Queue the maintenance and the messages that earlier sessions did not get to."""
        self.maintenance.finish_earlier_work(tables, staged)
        if self.notifier:
            self.notifier.read_later([table.binding.path for table in tables])


@contextmanager
def run_threads(
    catalog: OpenedCatalog, materialization: str, key_range: str, config: EndpointConfig, spark: Spark
) -> Iterator[SessionThreads]:
    """Run the threads until the session ends. Spark may still be starting."""
    writers = SnapshotWriters()
    reload = partial(load_opened_table, catalog, config)
    compactor = TableCompactor(catalog, compact_in(spark), reload, writers)
    with ExitStack() as threads:
        compaction = threads.enter_context(run_compaction(compactor.compact, key_range))
        maintenance = threads.enter_context(run_maintenance(catalog, compaction.note_commit, writers.locks))
        notifier = threads.enter_context(_run_notifier(partial(load_table, catalog), materialization, config))
        marking = replace(writers, mark=notifier.mark) if notifier else writers
        reports = [report_outcome] if facts.report is not facts.drop else []  # they read the summaries of snapshots
        messages = [notifier.note_outcome] if notifier else []
        committer = Committer(
            partial(try_commits, catalog, writers=marking),
            Limit(config.advanced.max_waiting_commits, config.advanced.max_waiting_bytes, find_state_limit(key_range)),
            [*reports, *messages, maintenance.note_outcome],
            # Only the next session gets new keys from the runtime.
            (*ENDING, RefusedKeysError) if isinstance(config.credentials, AwsIam) else ENDING,
        )
        yield SessionThreads(committer, writers.manifests, maintenance, notifier)


def _run_notifier(
    load: "LoadTable", materialization: str, config: EndpointConfig
) -> "AbstractContextManager[Notifier | None]":
    if config.notify is None:
        return nullcontext()
    from connector.notifications.notifier import run_notifier  # only if it is turned on

    return run_notifier(load, materialization, config.notify)
