"""The status of a table, its writers and the commits that are staged for it, as texts and as JSON."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from connector.cli.texts.health_texts import describe_age, describe_health, describe_rows, format_count
from connector.host.logs import format_bytes
from connector.iceberg.commits.lost_commits import LostCommits
from connector.iceberg.commits.verdicts import JudgedCommit, Verdict
from connector.iceberg.commits.writers import RecordedWriter
from connector.iceberg.maintenance.table_health import TableHealth
from connector.iceberg.table_status import LastSnapshot, Reference, TableStatus
from connector.model.table_identifier import Owner
from protocol.flow import Json

VERDICT_TEXTS: Final = {
    Verdict.SUPERSEDED: "superseded: a backfill came after it",
    Verdict.OTHER_TABLE: "staged for a table that this one has replaced, or for an older copy of it; or after a "
    "backfill that it is older than",
}
NO_STATE: Final = "unknown: give the task's connector state with --state"


def describe_writers(writers: Sequence[RecordedWriter]) -> Iterator[str]:
    """Describe each writer in several lines."""
    for writer in writers:
        owner = writer.owner
        yield f"{owner.materialization}, state key {owner.state_key}" if owner else "a writer that no snapshot names"
        yield f"  key range    {writer.key_range}{' (closed)' if writer.is_closed else ''}"
        yield f"  property     {writer.property_name}"
        yield f"  value        {writer.value}"
        last = writer.last_commit
        yield f"  last commit  {_format_time(last) if last else 'in no snapshot that the table still has'}"
        if writer.last_reset:
            yield f"  last reset   {writer.last_reset}"


def describe_staged(verdicts: Sequence[JudgedCommit]) -> Iterator[str]:
    """Describe each staged commit in two lines."""
    for verdict in verdicts:
        commit = verdict.staged
        yield f"state key {commit.writer.state_key}, key range {commit.writer.key_range}"
        staged = f"{format_count(commit.rows, 'row')} in {format_count(commit.file_count, 'file')}"
        text = VERDICT_TEXTS.get(verdict.verdict, verdict.verdict)
        yield f"  {commit.prev or 'none'} -> {commit.next}: {staged}: {text}"


def describe_lost(lost: Sequence[LostCommits]) -> Iterator[str]:
    """Describe the lost commits of each writer in two lines."""
    for each in lost:
        yield f"state key {each.writer.state_key}, key range {each.writer.key_range}"
        yield f"  {each.count} transaction(s), up to {each.value}"


def encode_lost(lost: Sequence[LostCommits]) -> list[dict[str, Any]]:
    """Return the lost commits as JSON values."""
    return [
        {
            "stateKey": each.writer.state_key,
            "keyRange": each.writer.key_range,
            "value": each.value,
            "transactions": each.count,
            "isInTable": each.is_in_table,
        }
        for each in lost
    ]


def encode_writers(writers: Sequence[RecordedWriter]) -> list[dict[str, Any]]:
    """Return the writers as JSON values."""
    return [
        {
            "property": writer.property_name,
            "keyRange": writer.key_range,
            "value": writer.value,
            "isClosed": writer.is_closed,
            "materialization": writer.owner and writer.owner.materialization,
            "stateKey": writer.owner and writer.owner.state_key,
            "lastCommit": writer.last_commit and writer.last_commit.isoformat(),
            "lastReset": writer.last_reset and _parse_note(writer.last_reset),
        }
        for writer in writers
    ]


def _parse_note(note: str) -> Json:
    try:
        return json.loads(note)
    except ValueError:
        return note  # somebody has changed the table's property


def encode_staged(verdicts: Sequence[JudgedCommit]) -> list[dict[str, Any]]:
    """Return the staged commits as JSON values."""
    return [
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
    ]


def describe_status(status: TableStatus, health: TableHealth | None) -> Iterator[str]:
    """Describe a table in several lines."""
    size = status.size
    files = f"{format_count(size.data_files, 'data file')}, {format_count(size.delete_files, 'delete file')}"
    yield f"table {status.path}"
    yield f"  rows         {describe_rows(size.rows, size.delete_files, health)}"
    yield f"  files        {files}, {format_bytes(size.size)}"
    yield from describe_health(health) if health else ()
    by = ", ".join(status.partition_fields) or "none"
    yield f"  partitions   {by}{f' ({status.partitions:,} with files)' if status.partitions else ''}"
    yield f"  sorted by    {', '.join(status.sort_fields) or 'no column'}"
    yield f"  snapshots    {status.snapshots:,}"
    if status.references:
        yield from _list("references", map(_describe_reference, status.references))
    yield f"  last commit  {_describe_commit(status.last_commit) if status.last_commit else 'none'}"
    if fresh := status.freshness:
        rows = format_count(fresh.upserted, "row")
        yield f"  freshness    published until {_format_time(fresh.last)}: {rows}, {fresh.deleted:,} deleted"
    yield f"  created by   {_name(status.owner) if status.owner else 'another program'}"
    if status.awaits_backfill:
        yield "  backfill     has begun: the first commit replaces all rows"
    yield f"  location     {status.location}"
    yield f"  uuid         {status.uuid}"
    columns = (f"{each.name} {each.field_type}{' not null' if each.required else ''}" for each in status.columns)
    yield from _list("columns", columns)
    yield from _list("writers", describe_writers(status.writers))
    if status.staged is None:
        yield f"  staged       {NO_STATE}"
    else:
        yield from _list("staged", describe_staged(status.staged))


def _list(title: str, lines: Iterator[str]) -> Iterator[str]:
    listed = [*lines]
    if not listed:
        yield f"  {title:<12} none"
        return
    yield f"  {title}"
    for line in listed:
        yield f"    {line}"


def _describe_reference(reference: Reference) -> str:
    at = reference.at
    snapshot = f"the snapshot of {_format_time(at)}" if at else "a snapshot that the table does not have"
    return f"{reference.kind} {reference.name}: {snapshot}"


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({describe_age(at)})"


def _describe_commit(commit: LastSnapshot) -> str:
    by = _name(commit.owner) if commit.owner else commit.engine or "another program"
    return f"{_format_time(commit.at)}: {commit.operation} by {by}"


def _name(owner: Owner) -> str:
    return f"{owner.materialization}, state key {owner.state_key}" if owner.state_key else owner.materialization


def encode_status(status: TableStatus) -> dict[str, Any]:
    """Return the status of a table as a JSON value."""
    commit, fresh = status.last_commit, status.freshness
    return {
        "table": str(status.path),
        "uuid": status.uuid,
        "location": status.location,
        "owner": _encode_owner(status.owner),
        "awaitsBackfill": status.awaits_backfill,
        "rows": status.size.rows,
        "dataFiles": status.size.data_files,
        "deleteFiles": status.size.delete_files,
        "bytes": status.size.size,
        "partitionBy": [*status.partition_fields],
        "partitions": status.partitions,
        "sortBy": [*status.sort_fields],
        "snapshots": status.snapshots,
        "references": [_encode_reference(each) for each in status.references],
        "lastCommit": commit
        and {
            "at": commit.at.isoformat(),
            "operation": commit.operation,
            "owner": _encode_owner(commit.owner),
            "engine": commit.engine or None,
        },
        "freshness": fresh
        and {
            "minPublishedAt": fresh.first.isoformat(),
            "maxPublishedAt": fresh.last.isoformat(),
            "upsertedRows": fresh.upserted,
            "deletedRows": fresh.deleted,
            "offsets": fresh.offsets,
        },
        "columns": [
            {"name": column.name, "type": str(column.field_type), "required": column.required}
            for column in status.columns
        ],
        "writers": encode_writers(status.writers),
        "staged": None if status.staged is None else encode_staged(status.staged),
    }


def _encode_reference(reference: Reference) -> dict[str, str | None]:
    return {
        "name": reference.name,
        "type": reference.kind,
        "snapshotId": str(reference.snapshot_id),  # JavaScript cannot hold such numbers
        "at": reference.at.isoformat() if reference.at else None,
    }


def _encode_owner(owner: Owner | None) -> dict[str, str] | None:
    return {"materialization": owner.materialization, "stateKey": owner.state_key} if owner else None
