"""`fence show` and `fence reset`: shows the fence values of a table's writers, and lets a fenced writer continue."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table

from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.task_tables import parse_table, read_commits
from connector.cli.texts.table_texts import (
    NO_STATE,
    describe_lost,
    describe_staged,
    describe_writers,
    encode_lost,
    encode_staged,
    encode_writers,
)
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_existing_catalog, translate_errors
from connector.iceberg.commits.lost_commits import LostCommits, find_lost
from connector.iceberg.commits.reset import Decision, Reset, perform_reset, plan_reset, plan_reset_of_lost
from connector.iceberg.commits.verdicts import JudgedCommit, Verdict, judge_commits
from connector.iceberg.commits.writers import RecordedWriter, list_recorded_writers
from connector.iceberg.loaded_tables import load_table
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage import storage_errors

LOST_TITLES: Final = (
    ("lost: the table had these, and was restored from an older copy", False),
    ("not lost: a snapshot of the table has these, and only its fence property was removed or changed", True),
)


@dataclass(frozen=True)
class FenceArguments:
    """The arguments of both commands: the table, and the file with the task's state."""

    source: ConfigFile | FlowFile
    table: str
    materialization: str | None = None
    state: str | None = None

    def read(self) -> "_TableWithState":
        """Read the table and the state. Raises UserError if one of them cannot be read."""
        task = self.source.read()
        endpoint, _ = parse(task.config, [])
        path = parse_table(self.table, endpoint)
        read = read_commits(self.state, self.materialization or task.name) if self.state else None
        table = _load(endpoint, path)
        if read is None:
            return _TableWithState(endpoint, table, None, ())
        staged, finished = read
        here = [commit for commit in staged if commit.path == path]
        return _TableWithState(endpoint, table, here, find_lost(table, staged, finished))


@dataclass(frozen=True)
class _TableWithState:
    """The table, and what the state says of it."""

    endpoint: EndpointConfig
    table: Table
    staged: Sequence[StagedCommit] | None  # None without a state
    lost: Sequence[LostCommits]


def show(arguments: FenceArguments, *, as_json: bool) -> str:
    """Show every writer of the table, and what happens to each staged commit when the task opens."""
    found = arguments.read()
    writers = list_recorded_writers(found.table)
    verdicts = None if found.staged is None else judge_commits(found.table, found.staged)
    uuid = str(found.table.metadata.table_uuid)
    if as_json:
        known = None if verdicts is None else encode_staged(verdicts)
        shown = {"tableUuid": uuid, "writers": encode_writers(writers), "staged": known}
        return json.dumps(shown | {"lost": encode_lost(found.lost)}, indent=2)
    return "\n".join(_format_text(f"table {arguments.table}, uuid {uuid}", writers, verdicts, found.lost))


def reset(
    arguments: FenceArguments,
    writer: tuple[str, str],
    decision: Decision,
    reason: str,
    *,
    is_confirmed: bool,
    as_json: bool = False,
) -> str:
    """Say what a reset of the writer's fence causes, and reset it if that is confirmed.

    The writer is given as its state key and its key range.
    """
    found = arguments.read()
    with translate_errors(found.endpoint), storage_errors.translate_errors(found.table.location()):
        planned = _plan_reset(arguments, found, writer, decision)
    if is_confirmed:
        perform_reset(found.table, planned, reason)
    if as_json:
        consequences = {"isReset": is_confirmed, "value": planned.value, "consequences": planned.consequences}
        return json.dumps(consequences, indent=2)
    return "\n".join((*planned.consequences, _describe_outcome(planned, is_confirmed=is_confirmed)))


def _plan_reset(
    arguments: FenceArguments, found: _TableWithState, writer: tuple[str, str], decision: Decision
) -> Reset:
    state_key, key_range = writer
    stuck = [
        verdict.staged
        for verdict in judge_commits(found.table, found.staged or ())
        if verdict.verdict in (Verdict.FENCED, Verdict.FILES_MISSING, Verdict.SPEC_MISSING)
        and (verdict.staged.writer.state_key, verdict.staged.writer.key_range) == writer
    ]
    if stuck:
        return plan_reset(found.table, stuck, decision)
    for lost in found.lost:
        if (lost.writer.state_key, lost.writer.key_range) == writer:
            return plan_reset_of_lost(lost, decision)
    raise UserError(
        f"table {arguments.table}: for state key {state_key} and key range {key_range}, the state names no commit that "
        "is fenced, or whose files or partition spec are gone: there is nothing to reset. `fence show` lists what is "
        "there."
    )


def _load(endpoint: EndpointConfig, path: TableIdentifier) -> Table:
    catalog = open_existing_catalog(endpoint)
    with translate_errors(endpoint):
        table = load_table(catalog, path)
    if table is None:
        raise UserError(f"table {path} does not exist. Correct --table, or the catalog in the config.")
    return table


def _describe_outcome(planned: Reset, *, is_confirmed: bool) -> str:
    if is_confirmed:
        return f"The fence was reset to {planned.value}. Start the task."
    return "Nothing was changed. Stop the task, and repeat the command with --yes."


def _format_text(
    title: str,
    writers: Sequence[RecordedWriter],
    verdicts: Sequence[JudgedCommit] | None,
    lost: Sequence[LostCommits],
) -> Iterator[str]:
    yield title
    yield from describe_writers(writers)
    if verdicts is None:
        yield f"staged in the state: {NO_STATE}"
        return
    yield f"staged in the state{'' if verdicts else ': none'}"
    yield from (f"  {line}" for line in describe_staged(verdicts))
    for title, is_in_table in LOST_TITLES:
        if listed := [each for each in lost if each.is_in_table == is_in_table]:
            yield title
            yield from (f"  {line}" for line in describe_lost(listed))
