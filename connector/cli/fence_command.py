"""`fence show` and `fence reset`: shows the fence values of a table's writers, and lets a fenced writer continue."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.table import Table

from connector.cli.arguments import read_json
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.iceberg.commits.reset import Decision, Judged, Reset, Verdict, judge_commits, perform_reset, plan_reset
from connector.iceberg.commits.writers import RecordedWriter, list_recorded_writers
from connector.iceberg.tables import load_table
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.model.table_identifier import TableIdentifier

VERDICT_TEXTS: Final = {Verdict.OTHER_TABLE: "staged for a table that this one has replaced"}


@dataclass(frozen=True)
class Place:
    """The arguments of both commands: the table, and the file with the task's state."""

    config: str
    table: str
    materialization: str | None = None
    state: str | None = None

    @property
    def path(self) -> TableIdentifier:
        """The table in lower case. Raises UserError if the argument has no namespace."""
        namespace, _, table = self.table.lower().partition(".")
        if not table:
            raise UserError(f"--table {self.table}: give the namespace and the table, with a dot between them.")
        return TableIdentifier(namespace, table)

    def read_staged(self) -> list[StagedCommit]:
        """Read the table's staged commits from the state. Raises UserError if the state cannot be read."""
        if self.state is None:
            return []
        if not self.materialization:
            raise UserError("--state needs --materialization: the state does not name its task.")
        staged = read_state(self.materialization, read_json(self.state))
        return [commit for commit in staged if commit.path == self.path]


def show(place: Place, *, as_json: bool) -> str:
    """Show every writer of the table, and what happens to each staged commit when the task opens."""
    staged = place.read_staged()
    table = _load(place)
    writers, verdicts = list_recorded_writers(table), judge_commits(table, staged)
    uuid = str(table.metadata.table_uuid)
    if as_json:
        return json.dumps(_format_json(uuid, writers, verdicts), indent=2)
    return "\n".join(_format_text(f"table {place.table}, uuid {uuid}", writers, verdicts))


def reset(place: Place, state_key: str, key_range: str, decision: Decision, reason: str, *, is_confirmed: bool) -> str:
    """Say what a reset of the writer's fence causes, and reset it if that is confirmed."""
    staged = place.read_staged()
    table = _load(place)
    stuck = [
        verdict.staged
        for verdict in judge_commits(table, staged)
        if verdict.verdict in (Verdict.FENCED, Verdict.FILES_MISSING)
        and (verdict.staged.writer.state_key, verdict.staged.writer.key_range) == (state_key, key_range)
    ]
    if not stuck:
        raise UserError(
            f"table {place.table}: for state key {state_key} and key range {key_range}, the state names no commit that "
            "is fenced or whose files are gone: there is nothing to reset. `fence show` lists what is there."
        )
    planned = plan_reset(table, stuck, decision)
    if is_confirmed:
        perform_reset(table, planned, reason)
    return "\n".join((*planned.consequences, _describe_outcome(planned, is_confirmed=is_confirmed)))


def _load(place: Place) -> Table:
    config, _ = parse(read_json(place.config), [])
    with translate_errors(config):
        table = load_table(open_catalog(config), place.path)
    if table is None:
        raise UserError(f"table {place.table} does not exist.")
    return table


def _describe_outcome(planned: Reset, *, is_confirmed: bool) -> str:
    if is_confirmed:
        return f"The fence was reset to {planned.value}. Start the task."
    return "Nothing was changed. Stop the task, and repeat the command with --yes."


def _format_text(title: str, writers: Sequence[RecordedWriter], verdicts: Sequence[Judged]) -> Iterator[str]:
    yield title
    for writer in writers:
        owner = writer.owner
        yield f"{owner.materialization}, state key {owner.state_key}" if owner else "a writer that no snapshot names"
        yield f"  key range    {writer.key_range}{' (closed)' if writer.is_closed else ''}"
        yield f"  property     {writer.property_name}"
        yield f"  value        {writer.value}"
        yield f"  last commit  {writer.last_commit or 'in no snapshot that the table still has'}"
        if writer.last_reset:
            yield f"  last reset   {writer.last_reset}"
    if verdicts:
        yield "staged in the state"
    for verdict in verdicts:
        commit = verdict.staged
        yield f"  state key {commit.writer.state_key}, key range {commit.writer.key_range}"
        staged = f"{commit.rows} rows in {commit.file_count} file(s)"
        text = VERDICT_TEXTS.get(verdict.verdict, verdict.verdict)
        yield f"    {commit.prev or 'none'} -> {commit.next}: {staged}: {text}"


def _format_json(uuid: str, writers: Sequence[RecordedWriter], verdicts: Sequence[Judged]) -> dict[str, Any]:
    return {
        "tableUuid": uuid,
        "writers": [
            {
                "property": writer.property_name,
                "keyRange": writer.key_range,
                "value": writer.value,
                "isClosed": writer.is_closed,
                "materialization": writer.owner and writer.owner.materialization,
                "stateKey": writer.owner and writer.owner.state_key,
                "lastCommit": writer.last_commit and writer.last_commit.isoformat(),
                "lastReset": json.loads(writer.last_reset) if writer.last_reset else None,
            }
            for writer in writers
        ],
        "staged": [
            {
                "stateKey": verdict.staged.writer.state_key,
                "keyRange": verdict.staged.writer.key_range,
                "prev": verdict.staged.prev,
                "next": verdict.staged.next,
                "rows": verdict.staged.rows,
                "files": verdict.staged.file_count,
                "verdict": verdict.verdict,
            }
            for verdict in verdicts
        ],
    }
