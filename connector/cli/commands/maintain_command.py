"""`maintain`: performs maintenance actions on tables, also on those whose task is stopped."""

import logging
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.table import Table

from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.maintain_arguments import ALL
from connector.cli.task_tables import describe_error, find_tables, parse_tables
from connector.cli.texts.maintain_texts import describe_failed_groups
from connector.cli.waiting import WaitingLine
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.encoding.rewriting.file_groups import Compact
from connector.host.errors import BACKFILL, ConnectorError
from connector.host.late_start import start_when_needed
from connector.host.redaction import redact
from connector.host.threads import map_in_threads
from connector.iceberg.catalog_messages import explain_gone_table
from connector.iceberg.catalogs.opening import (
    OpenedCatalog,
    load_opened_table,
    open_existing_catalog,
    translate_errors,
)
from connector.iceberg.fences import fence
from connector.iceberg.maintenance.action_outcomes import (
    ActionOutcome,
    MaintainedTable,
    MaintainedTables,
    is_finished,
)
from connector.iceberg.maintenance.actions import OLDER_THAN, REWRITING, Action
from connector.iceberg.maintenance.compact_table import PlanTable, TableCompactor
from connector.iceberg.maintenance.compaction_plan import plan_compaction
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.perform_actions import Budget, Maintainer, OrphanChoice, TableInTurn
from connector.iceberg.maintenance.rearrangement_plan import plan_rearrangement
from connector.iceberg.metadata.table_directories import is_in_table_bucket
from connector.iceberg.metadata.table_properties import name_table_in_errors
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage import storage_errors
from protocol.flow import Json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MaintainArguments:
    """The arguments of the command. Without tables, all of the task's tables."""

    source: ConfigFile | FlowFile
    actions: Sequence[Action]
    tables: Sequence[str]
    is_dry_run: bool
    max_seconds: float | None
    max_bytes: int | None
    plan: PlanTable
    orphans: OrphanChoice
    spark: Mapping[str, str]


def read_arguments(options: Namespace, source: ConfigFile | FlowFile) -> MaintainArguments:
    """Read the arguments of the command line, which are checked."""
    days = options.older_than
    return MaintainArguments(
        source=source,
        actions=[*Action] if options.action == ALL else [Action(options.action)],
        tables=options.table,
        is_dry_run=options.dry_run,
        max_seconds=options.max_seconds,
        max_bytes=options.max_bytes,
        plan=plan_rearrangement if options.rearrange else plan_compaction,
        orphans=OrphanChoice(
            OLDER_THAN if days is None else timedelta(days=days), days is not None, options.dropped_tables
        ),
        spark=dict(map(_parse_setting, options.spark)),
    )


def _parse_setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return f"spark.{name.removeprefix('spark.')}", value


def maintain_tables(arguments: MaintainArguments, waiting: WaitingLine) -> MaintainedTables:
    """Perform the actions on each table. Raises UserError if the catalog cannot be read."""
    task = arguments.source.read()
    config = _add_settings(task.config, arguments.spark, "advanced", "spark")
    endpoint, resources = parse(config, [binding.resource for binding in task.bindings])
    chosen = parse_tables(arguments.tables, endpoint)
    budget = Budget(arguments.max_seconds, arguments.max_bytes)
    with closing(open_existing_catalog(endpoint)) as catalog, _compact_by_spark(endpoint.advanced.spark) as compact:
        reload = partial(load_opened_table, catalog, endpoint)
        new_compactor = partial(TableCompactor, catalog, compact, reload, plan=arguments.plan)
        maintainer = Maintainer(catalog, new_compactor, budget, arguments.orphans, is_dry_run=arguments.is_dry_run)
        run = _Run(endpoint, catalog, maintainer, arguments.actions)
        with translate_errors(endpoint):
            found = [*find_tables(catalog, endpoint, resources, chosen, task.name)]
        doing = f"{', '.join(arguments.actions)}: {len(found)} tables"
        tables = waiting.show(doing, partial(run.maintain, found))
        return MaintainedTables(arguments.is_dry_run, tables, run.errors, run.defect)


@contextmanager
def _compact_by_spark(settings: Mapping[str, str]) -> Iterator[Compact]:
    """Yield a function that compacts file groups. Spark starts with the first call."""
    with start_when_needed(partial(_start_compaction_jobs, settings)) as start:
        yield lambda target, groups, access: start()(target, groups, access)


def _start_compaction_jobs(settings: Mapping[str, str]) -> AbstractContextManager[Compact]:
    from connector.spark.jobs.compaction_job import compaction_jobs  # most runs need no Spark

    return compaction_jobs(settings)


def _add_settings(config: Any, settings: Mapping[str, str], *path: str) -> Json:
    """Return the config with these settings in the object at the path. Where it has no object, it stays as it is: the
    parser names the problem."""
    if not settings or not isinstance(config, dict):
        return config
    if not path:
        return {**config, **settings}
    name, *rest = path
    member = config.get(name)
    return {**config, name: _add_settings({} if member is None else member, settings, *rest)}


class _Run:
    """One run over several tables at the same time. An error of one table does not stop the others."""

    def __init__(
        self, endpoint: EndpointConfig, catalog: OpenedCatalog, maintainer: Maintainer, actions: Sequence[Action]
    ) -> None:
        self._endpoint = endpoint
        self._catalog = catalog
        self._maintainer = maintainer
        self._actions = actions
        self.errors: list[tuple[TableIdentifier, str]] = []
        self.defect: Exception | None = None  # the first unexpected error

    def maintain(self, found: Iterable[tuple[TableIdentifier, Table | ConnectorError]]) -> list[MaintainedTable]:
        """Return what was done to the tables, in their order. The same holds for the errors."""
        before: TableInTurn | None = None
        work: list[Callable[[], _Done]] = []
        for path, table in found:
            if isinstance(table, ConnectorError):
                work.append(partial(_Done, path, None, [describe_error(path, table)]))
            elif is_in_table_bucket(table.location()):
                work.append(partial(_Done, path, MaintainedTable(path, (), is_managed=True), []))
            elif (owner := Owner.of(table.properties)) or fence.find_writer_hashes(table.properties):
                before = TableInTurn(self._catalog, path, owner, before)
                work.append(partial(self._perform_all, before, table))
            else:
                error = (
                    "another program created this table, and no task of this connector has written to it. Maintain it "
                    "with that program, or with an engine."
                )
                work.append(partial(_Done, path, None, [error]))
        done = map_in_threads(lambda each: each(), work, "maintain")
        self.errors += ((each.path, error) for each in done for error in each.errors)
        self.defect = next((each.defect for each in done if each.defect), None)
        return [each.table for each in done if each.table]

    def _perform_all(self, table: TableInTurn, found: Table) -> "_Done":
        outcomes: list[tuple[Action, ActionOutcome]] = []
        errors: list[str] = []
        defect: Exception | None = None
        try:
            for action in self._actions:
                if action not in REWRITING:
                    table.end_turn()
                try:
                    outcome = self._perform(action, table, found)
                except ConnectorError as error:
                    errors.append(f"{action}: {describe_error(table.path, error)}")
                except InvalidMetadataError as error:
                    broken = f"one of its metadata files is broken ({type(error).__name__}: {redact(str(error))})"
                    errors.append(f"{action}: {broken}. Repair the table, or {BACKFILL}.")
                else:
                    outcomes.append((action, outcome))
                    if isinstance(outcome, CompactionResult) and outcome.errors:
                        errors.append(f"{action}: {describe_failed_groups(outcome.errors)}")
        except Exception as error:  # noqa: BLE001 - raised when the other tables are done
            defect = error
        finally:
            table.end_turn()
        return _Done(table.path, MaintainedTable(table.path, outcomes), errors, defect)

    def _perform(self, action: Action, table: TableInTurn, found: Table) -> ActionOutcome:
        try:
            with (
                translate_errors(self._endpoint),
                name_table_in_errors(found),
                storage_errors.translate_errors(found.location()),
            ):
                outcome = self._maintainer.perform(action, table)
        except NoSuchTableError:
            raise explain_gone_table(table.path) from None
        is_planned = self._maintainer.is_dry_run and is_finished(outcome)
        log.info(
            "%s %s: %s",
            action,
            table.path,
            "planned" if is_planned else "done" if is_finished(outcome) else "not finished",
        )
        return outcome


@dataclass(frozen=True)
class _Done:
    """What was done to a table, if anything, and what failed."""

    path: TableIdentifier
    table: MaintainedTable | None
    errors: Sequence[str]
    defect: Exception | None = None
