"""Opens the tables of a session: commits what earlier sessions staged, and binds the tables.

The answer to Open waits for this, and imports take most of the time. So this imports what reads tables, and nothing
that writes or searches. What commits is imported here only if there is something to commit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.host.errors import UserError
from connector.host.garbage import pause_garbage_collection
from connector.host.late_start import start_when_needed
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.catalogs.opening import OpenedCatalog, open_catalog, translate_errors
from connector.model.binding import RowSettings, UpdateMode
from connector.model.estuary_state import check_files_are_added
from connector.model.state import StagedCommit
from connector.model.state_reader import read_finished, read_state
from connector.session.recovery import (
    Recovered,
    bind_newest,
    check_fences,
    check_finished,
    check_names,
    select_overlapping_commits,
)
from connector.spark.jvm.start_spark import SessionSpark
from protocol import request
from protocol.flow import KEY_END, V2_LABEL, WHOLE_RANGE
from protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from connector.session.session_threads import SessionThreads


@dataclass(frozen=True)
class OpenedTables:
    """The tables of a session, and what else the session is made from."""

    config: EndpointConfig
    session_spark: SessionSpark  # may still be starting
    catalog: OpenedCatalog
    staged: Sequence[StagedCommit]  # by earlier sessions
    recovered: Recovered
    start_threads: "Callable[[], SessionThreads]"  # returns the same each time

    @property
    def tables(self) -> Sequence[BoundTable]:
        """The bindings' tables in their order, and then the tables of rejected rows."""
        return self.recovered.tables

    @property
    def may_have_other_rows(self) -> bool:
        """Whether Loads must be sent for all keys: a table may have rows of keys that its binding has never stored."""
        return any(table.may_have_other_rows for table in self.tables)


@contextmanager
def open_tables(
    message: request.Open, config: EndpointConfig, resource_configs: Sequence[ResourceConfig], started: SessionSpark
) -> Iterator[OpenedTables]:
    """Open the tables. Raises UserError if the user must change the task first."""
    task, key_range = message.materialization, _check_key_range(message)
    staged = select_overlapping_commits(read_state(task.name, message.state), key_range)
    row_settings = [_make_settings(resource, config) for resource in resource_configs]
    with pause_garbage_collection():
        catalog = open_catalog(config)
    appends = [each.existing_table.appends for each in resource_configs]

    def bind() -> list[BoundTable]:
        tables = bind_all(catalog, task, key_range, row_settings)
        check_names(tables, appends)
        for table in tables[: len(task.bindings)]:
            check_files_are_added(message.state, table.writer.state_key, table.properties, task.name)
        check_finished(tables, read_finished(task.name, message.state), staged)
        if staged:
            check_fences(tables, start_threads().committer.fences)
        return tables

    with start_when_needed(partial(_run_threads, catalog, task.name, key_range, config, started)) as start_threads:
        with translate_errors(config):
            newest = partial(bind_newest, bind)
            recovered = start_threads().recover(staged, newest) if staged else Recovered((), newest())
        yield OpenedTables(config, started, catalog, staged, recovered, start_threads)


def _run_threads(
    catalog: OpenedCatalog, materialization: str, key_range: str, config: EndpointConfig, started: SessionSpark
) -> "AbstractContextManager[SessionThreads]":
    with pause_garbage_collection():
        from connector.session.session_threads import run_threads

    return run_threads(catalog, materialization, key_range, config, started.spark)


def _make_settings(resource: ResourceConfig, config: EndpointConfig) -> RowSettings:
    updates = UpdateMode.HARD_DELETE if config.hard_delete else UpdateMode.KEEP_DELETED
    return RowSettings(
        resource.on_invalid, resource.max_rejected_ratio, UpdateMode.DELTA if resource.delta_updates else updates
    )


def _check_key_range(message: request.Open) -> str:
    held = message.shard_range
    if not 0 <= held.key_begin <= held.key_end <= KEY_END:
        raise ProtocolError(
            f"the key range of open begins with {held.key_begin} and ends with {held.key_end}: expected two numbers of "
            "32 bits, the smaller one first"
        )
    if (held.r_clock_begin, held.r_clock_end) != (WHOLE_RANGE.r_clock_begin, WHOLE_RANGE.r_clock_end):
        raise UserError("open: this shard covers only part of the r-clock range. Split the task by key instead.")
    if held != WHOLE_RANGE and not message.materialization.runs_on_v2:
        raise UserError(
            f"open: this shard covers only the key range {held.key_range}, and the runtime keeps a separate state for "
            f"each shard. Run the task with one shard, or set its label {V2_LABEL} to true."
        )
    return held.key_range
