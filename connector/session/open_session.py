"""Opens a session: starts its threads and servers, commits what earlier sessions staged, and binds the tables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.host.errors import UserError
from connector.iceberg.bound_table import bind_all
from connector.iceberg.catalogs.opening import keep_access_fresh, open_catalog, translate_errors
from connector.iceberg.commits.commit import Outcome, TableLocks, try_commits
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.maintenance.background import Maintenance, run_maintenance
from connector.iceberg.maintenance.background_compaction import run_compaction
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.metadata.listed_files import ManifestReader
from connector.iceberg.metadata.manifests import WrittenLists
from connector.iceberg.tables import load_table
from connector.model.binding import Policy, UpdateMode
from connector.model.state_reader import check_estuary_staged_nothing, read_state
from connector.session.backlog import Limit
from connector.session.commit_facts import measure_opened, measure_recovered
from connector.session.committer import Committer
from connector.session.recovery import find_overlapping, recover
from connector.session.transactions import Session, WriteJobs
from connector.spark.compaction_job import compact_in
from connector.spark.engine import Engine
from connector.spark.write_job import open_claim_server
from protocol import request
from protocol.flow import WHOLE_RANGE, Materialization

if TYPE_CHECKING:
    from connector.iceberg.table_view import SessionViews
    from connector.notifications.notifier import Load, Notifier

V2_LABEL: Final = "estuary.dev/flag/enable-runtime-v2"


@contextmanager
def open_session(
    message: request.Open, config: EndpointConfig, resource_configs: Sequence[ResourceConfig], engine: Engine
) -> Iterator[Session]:
    """Open a session. Its engine may still be starting. Raises UserError if the user must change the task first."""
    task, key_range = message.materialization, _check_key_range(message)
    staged = find_overlapping(read_state(task.name, message.state), key_range)
    check_estuary_staged_nothing(message.state, (binding.state_key for binding in task.bindings))
    policies = [_make_policy(resource, config) for resource in resource_configs]
    with ExitStack() as resources:
        claims = resources.enter_context(
            closing(open_claim_server(config.advanced.spark, engine.directories.sockets / "claims"))
        )
        catalog = open_catalog(config)
        lists = WrittenLists()
        manifests = ManifestReader(lists)
        new_writer, locks = partial(SnapshotWriter, lists, manifests), TableLocks()
        compactor = TableCompactor(catalog, compact_in(engine.spark), new_writer, locks)
        compaction = resources.enter_context(run_compaction(compactor.compact, key_range))
        maintenance = resources.enter_context(run_maintenance(catalog, compaction.note_commit, locks))
        notifier = resources.enter_context(_run_notifier(partial(load_table, catalog), task.name, config))
        committer = _make_committer(
            partial(try_commits, catalog, locks=locks), config, new_writer, maintenance, notifier
        )

        @cache
        def open_views() -> "SessionViews":
            from connector.iceberg.table_view import SessionViews, TableViews  # only for standard updates

            return SessionViews(catalog, TableViews(manifests), committer.find_pending)

        with translate_errors(config):
            measure_recovered(staged)
            recovered = recover(staged, committer, partial(bind_all, catalog, task, key_range, policies))
            tables = recovered.tables
            access = [keep_access_fresh(catalog, config, table.binding.path, table.access) for table in tables]
            jobs = WriteJobs(engine, claims, tables, access, len(task.bindings), open_views)
            measure_opened(table.binding.table for table in tables)
            session = Session(tables, recovered.commits, committer, jobs.start_writing, jobs.start_loading)
        maintenance.finish_earlier_work(tables, staged)
        if notifier:
            notifier.read_later([table.binding.path for table in tables])
        yield session


def _run_notifier(
    load: "Load", materialization: str, config: EndpointConfig
) -> "AbstractContextManager[Notifier | None]":
    if config.notify is None:
        return nullcontext()
    from connector.notifications.notifier import run_notifier  # only if it is turned on

    return run_notifier(load, materialization, config.notify)


def _make_committer(
    attempt: Callable[..., list[Outcome]],
    config: EndpointConfig,
    new_writer: Callable[..., SnapshotWriter],
    maintenance: Maintenance,
    notifier: "Notifier | None",
) -> Committer:
    limit = Limit(config.advanced.max_waiting_commits, config.advanced.max_waiting_bytes)
    if notifier is None:
        return Committer(partial(attempt, new_writer=new_writer), limit, maintenance.after_commit)
    marking = partial(attempt, new_writer=partial(new_writer, mark=notifier.mark))
    return Committer(marking, limit, maintenance.after_commit, notifier.after_landing)


def _make_policy(resource: ResourceConfig, config: EndpointConfig) -> Policy:
    updates = UpdateMode.HARD_DELETE if config.hard_delete else UpdateMode.KEEP_DELETED
    return Policy(
        resource.on_invalid, resource.max_rejected_ratio, UpdateMode.DELTA if resource.delta_updates else updates
    )


def _check_key_range(message: request.Open) -> str:
    held = WHOLE_RANGE if message.range is None else message.range
    if (held.r_clock_begin, held.r_clock_end) != (WHOLE_RANGE.r_clock_begin, WHOLE_RANGE.r_clock_end):
        raise UserError("open: this shard covers only part of the r-clock range. Split the task by key instead.")
    if held != WHOLE_RANGE and not _runs_on_v2(message.materialization):
        raise UserError(
            f"open: this shard covers only the key range {held.key_range}, and the runtime keeps a separate state for "
            f"each shard. Run the task with one shard, or set its label {V2_LABEL} to true."
        )
    return held.key_range


def _runs_on_v2(task: Materialization) -> bool:
    return any(label.name == V2_LABEL and label.value == "true" for label in task.shard_template.labels.labels)
