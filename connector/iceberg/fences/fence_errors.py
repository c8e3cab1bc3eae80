"""The errors of a process that a fence stops."""

import shlex

from connector.host.errors import BACKFILL, FencedError, OlderTableError
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier


def explain_unknown_value(table: TableIdentifier, writer: WriterId, name: str, value: str) -> FencedError:
    """Return the error of a process that finds a fence property with a name or a value that no connector writes."""
    return FencedError(
        f"table {table}: the property {name} is {value!r}, which is no fence value of this connector. It was "
        "probably changed by hand or by another engine. This process stops and adds nothing. Set the property to its "
        f"last value: the newest snapshot of {writer.materialization} with the same flow.state-key and "
        "flow.key-range has it in its summary as flow.fence. "
        "If rows are staged, `materialize-iceberg fence reset` can set it. Or remove the property, and "
        f"{BACKFILL}."
    )


def explain_fenced(staged: StagedCommit, name: str, value: str, expected: str = "") -> FencedError:
    """Return the error of a process that finds in property `name` another value than the expected ones. These are the
    values before and after the staged commit, unless `expected` names others."""
    writer, expected = staged.writer, expected or f"{staged.prev or 'none'} or {staged.next}"
    return FencedError(
        f"table {staged.path}: another process has taken over {writer.materialization} "
        f"(state key {writer.state_key}, key range {writer.key_range}). The table's property {name} is "
        f"{value or 'absent'}; this process expected {expected}. This process stops and adds nothing. If no other "
        "process runs this task, its state was restored from an older copy, or the table was changed by hand. Then "
        f"look at `materialize-iceberg fence show {format_arguments(staged.path, writer)}`, and reset the fence with "
        "`materialize-iceberg fence reset` only when you know which rows are right."
    )


def describe_older_value(name: str, value: str, had: str) -> str:
    """Say that the property `name` shows an older table."""
    return f"the catalog answers with an older table: its property {name} is {value}, and was {had} before"


def explain_lagging(table: TableIdentifier, older: str) -> OlderTableError:
    """Return the error of a process that finds an older table than it has read before. `older` says how."""
    return OlderTableError(
        f"table {table}: {older}. This process stops and adds nothing more. The next start reads the table again. Let "
        "the catalog answer with what was committed last, and not from a replica or a cache."
    )


def explain_lost(
    table: TableIdentifier, writer: WriterId, lost: int, had: str, name: str, value: str
) -> OlderTableError:
    """Return the error of a table that lacks the last `lost` transactions up to the fence value `had`: its property
    `name` has an older value."""
    arguments = f"{format_arguments(table, writer)} --state-key {shlex.quote(writer.state_key)}"
    return OlderTableError(
        f"table {table} lacks the last {lost} transaction(s) of {writer.materialization} (state key "
        f"{writer.state_key}, key range {writer.key_range}) that it had: the task's state says that it had them up "
        f"to {had}, and its property {name} is {value or 'absent'}. The table or its catalog was restored from an "
        "older copy, the catalog answered from a replica or a cache, or the property was changed by hand. "
        "Nothing was added. Bring the newest metadata of the table "
        f"back, or {BACKFILL}. If only the property was changed, set it to {had}. Only if these rows may be "
        "missing, and any that are staged after them, run "
        f"`materialize-iceberg fence reset {arguments} --key-range {writer.key_range} --staged skip --reason '…'`."
    )


def format_arguments(table: TableIdentifier, writer: WriterId) -> str:
    """Return the arguments of a command that name the table and the task."""
    return (
        f"--table {shlex.quote(str(table))} --materialization {shlex.quote(writer.materialization)} --config "
        "CONFIG.json --state STATE.json"
    )
