"""Opens a session: what earlier sessions staged is committed first, then every bound table's fence is read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.values import Settings
from connector.host.errors import MissingTableError, UserError
from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.catalogs.opening import keep_access_fresh, open_catalog, translate_errors
from connector.iceberg.maintenance.background import run_maintenance
from connector.model.estuary_state import check_nothing_is_staged
from connector.model.invalid_values import Policy
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.model.table_identifier import TableIdentifier
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.transactions import Session, StartWriting
from connector.spark.block_transfer import choose_transfer
from connector.spark.claim_server import claim_server
from connector.spark.engine import Engine
from connector.spark.layout import Layout, TableLayout
from connector.spark.spool import Spool
from connector.spark.write_job import WriteJob
from protocol import request
from protocol.flow import WHOLE_RANGE, Materialization

V2_LABEL: Final = "estuary.dev/flag/enable-runtime-v2"


@contextmanager
def open_session(
    message: request.Open, config: EndpointConfig, resource_configs: Sequence[ResourceConfig], engine: Engine
) -> Iterator[Session]:
    """A session whose engine may still be starting."""
    task, key_range = message.materialization, _key_range(message)
    staged = overlapping(read_state(task.name, message.state), key_range)
    check_nothing_is_staged(message.state, (binding.state_key for binding in task.bindings))
    with ExitStack() as resources:
        spark, directories = engine.spark, engine.directories
        settings, sockets = dict(config.advanced.spark), directories.sockets
        claims = resources.enter_context(closing(claim_server(settings, sockets / "claims")))
        catalog = open_catalog(config)
        spools = count(1)

        def writing(tables: Sequence[BoundTable]) -> StartWriting:
            access = [keep_access_fresh(catalog, config, table.binding.path, table.access) for table in tables]

            def start_writing(file_prefixes: Sequence[str]) -> WriteJob:
                layouts = _layouts(tables, file_prefixes, access)
                bindings = len(task.bindings)
                spool = Spool(directories.files / f"spool-{next(spools)}", limit=engine.spool_limit)
                transfer = choose_transfer(spark, layouts[:bindings])
                return WriteJob(spark.run, claims, spool, transfer, layouts[:bindings], layouts[bindings:])

            return start_writing

        maintenance = resources.enter_context(run_maintenance(catalog))
        advanced = config.advanced
        committer = Committer(maintenance.attempt, Limit(advanced.max_waiting_commits, advanced.max_waiting_bytes))
        with translate_errors(config):
            policies = [Policy(resource.on_invalid, resource.max_rejected_ratio) for resource in resource_configs]
            bind = partial(bind_all, catalog, task, key_range, policies)
            session = recover(staged, committer, bind, writing)
        maintenance.look_after(session.tables, staged)
        yield session


def _layouts(
    tables: Sequence[BoundTable], file_prefixes: Sequence[str], access: Sequence[Refreshed[Settings]]
) -> list[Layout]:
    """Every table's layout; a binding's includes that of its rejected rows."""
    layouts: list[Layout] = [partial(_layout, *table) for table in zip(tables, file_prefixes, access, strict=True)]
    return [
        partial(_layout_with_rejected, layout, layouts[table.quarantine.table]) if table.quarantine else layout
        for table, layout in zip(tables, layouts, strict=True)
    ]


def _layout(table: BoundTable, file_prefix: str, access: Refreshed[Settings]) -> TableLayout:
    return TableLayout(table.binding, table.location, table.properties, file_prefix, access.current())


def _layout_with_rejected(layout: Layout, rejected: Layout) -> TableLayout:
    return replace(layout(), rejected=rejected())


def recover(
    staged: Sequence[StagedCommit],
    committer: Committer,
    bind: Callable[[], Sequence[BoundTable]],
    writing: Callable[[Sequence[BoundTable]], StartWriting],
) -> Session:
    """Commit what earlier sessions staged, then read every bound table's fence.

    In this order: a fence value is this session's to build on only once nothing that is still to land can move it.
    """
    recovered = committer.commit(staged)
    try:
        tables = bind()
    except MissingTableError as error:
        _check_recovered(
            {(TableIdentifier(*error.path), error.state_key)}, staged, committer
        )  # says more: rows wait for the old table
        raise
    # What other key ranges or an older state key have staged for a table lands before anything of this session's.
    state_keys = {(table.binding.path, table.writer.state_key) for table in tables}
    uuids = {(table.binding.path, table.table_uuid) for table in tables}
    _check_recovered(state_keys | uuids, staged, committer)
    return Session(tables, recovered, committer, writing(tables))


def overlapping(staged: Iterable[StagedCommit], key_range: str) -> list[StagedCommit]:
    """The staged commits that are ours to finish: their key range overlaps ours, even if their binding is gone."""
    return [commit for commit in staged if commit.writer.overlaps(key_range)]


def _check_recovered(
    bound: Collection[tuple[TableIdentifier, str]], staged: Sequence[StagedCommit], committer: Committer
) -> None:
    """A table whose recovery failed may be tried again later. But if it is bound, raise a UserError: a table that was
    replaced never takes what was staged for the old one, and staged files that are gone stay gone.

    `bound` are paths, each with a state key, or with the uuid of a table that takes the rows of any state key.
    """
    for commit in staged:
        error = committer.error_of(commit.chain_id)
        is_bound = (commit.path, commit.writer.state_key) in bound or commit.table_id in bound
        if isinstance(error, UserError) and is_bound:
            raise error


def _key_range(message: request.Open) -> str:
    held = WHOLE_RANGE if message.range is None else message.range
    if (held.r_clock_begin, held.r_clock_end) != (WHOLE_RANGE.r_clock_begin, WHOLE_RANGE.r_clock_end):
        raise UserError("open: the shard holds only part of the r-clock range; split the task by key instead.")
    if held != WHOLE_RANGE and not _runs_on_v2(message.materialization):
        raise UserError(
            f"open: the shard holds only the key range {held.key_range}, and the task's runtime keeps a state of its "
            f"own for each shard. Run the task with one shard, or set its label {V2_LABEL} to true."
        )
    return held.key_range


def _runs_on_v2(task: Materialization) -> bool:
    return any(label.name == V2_LABEL and label.value == "true" for label in task.shard_template.labels.labels)
