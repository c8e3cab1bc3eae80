"""The outcomes of `maintain`, as text and as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

from connector.cli.texts.health_texts import format_count
from connector.host.logs import format_bytes
from connector.iceberg.maintenance.action_outcomes import (
    ActionOutcome,
    ExpiryOutcome,
    MaintainedTable,
    MaintainedTables,
    Managed,
    Unfinished,
    is_finished,
)
from connector.iceberg.maintenance.actions import Action
from connector.iceberg.maintenance.compaction_plan import CompactionPlan
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.find_orphan_files import OrphanFiles
from connector.iceberg.maintenance.rewrite_manifests import ManifestPlan
from connector.storage.stored_files import StoredFile

LISTED: Final = 10  # files that a dry run names for each action; JSON has all
MANAGED: Final = "Amazon S3 Tables maintains this table itself"
OPTIMIZED: Final = "nothing: AWS Glue does it for this table"
UNFINISHED: Final = "not finished: the budget is used up. Repeat the command to continue"
NOTHING_CHANGED: Final = "Nothing was changed. Repeat the command without --dry-run to do it."


def describe_maintenance(maintained: MaintainedTables) -> str:
    """Describe for a person what was done, or would be, without the errors."""
    lines = [line for table in maintained.tables for line in _describe_table(table, is_dry_run=maintained.is_dry_run)]
    if maintained.is_dry_run and maintained.tables:
        lines.append(NOTHING_CHANGED)
    nothing = "" if maintained.errors else "The connector has created no table here. Name others with --table."
    return "\n".join(lines) or nothing


def describe_failed_groups(errors: Sequence[str]) -> str:
    """Say why groups of a compaction failed. `errors` has one error for each."""
    first, *others = dict.fromkeys(errors)
    return f"{format_count(len(errors), 'group')} of files failed{'. The first error' if others else ''}: {first}"


def encode_maintenance(maintained: MaintainedTables) -> str:
    """Return the same as JSON."""
    return json.dumps(
        {
            "dryRun": maintained.is_dry_run,
            "tables": [
                {
                    "table": str(table.path),
                    "isManaged": table.is_managed,
                    "actions": [_encode_outcome(action, outcome) for action, outcome in table.outcomes],
                }
                for table in maintained.tables
            ],
            "errors": [{"table": str(path), "message": error} for path, error in maintained.errors],
        },
        indent=2,
    )


def _describe_table(table: MaintainedTable, *, is_dry_run: bool) -> Iterator[str]:
    yield f"table {table.path}{f': {MANAGED}' if table.is_managed else ''}"
    for action, outcome in table.outcomes:
        first, *more = _describe_outcome(outcome, is_dry_run=is_dry_run)
        yield f"  {action:<10} {first}"
        yield from (f"  {'':<10} {line}" for line in more)


def _describe_outcome(outcome: ActionOutcome, *, is_dry_run: bool) -> Iterator[str]:
    would = "would be " if is_dry_run else ""
    match outcome:
        case CompactionPlan():
            size = f" ({format_bytes(outcome.size)}, {format_count(outcome.rows, 'row')})" if outcome.files else ""
            yield f"{format_count(outcome.files, 'data file')}{size} would be compacted"
        case CompactionResult():
            yield from _describe_compaction(outcome)
        case ExpiryOutcome():
            yield from _describe_expiry(outcome, would)
            yield from _list_files(outcome.deleted) if is_dry_run else ()
        case OrphanFiles():
            yield from _describe_orphans(outcome, would)
            yield from _list_files(outcome.deletable) if is_dry_run else ()
        case ManifestPlan(groups=groups):
            into = f" ({format_bytes(outcome.size)}) {would}merged into {len(groups):,}"
            yield f"{format_count(len(outcome.replaced), 'manifest')}{into if groups else f' {would}merged'}"
        case Managed():
            yield OPTIMIZED
        case Unfinished(deleted):
            yield f"{UNFINISHED}{f'; {_describe_files(deleted)} deleted' if deleted else ''}"
        case _:
            assert_never(outcome)


def _describe_expiry(expiry: ExpiryOutcome, would: str) -> Iterator[str]:
    snapshots = format_count(expiry.snapshots, "snapshot")
    yield f"{snapshots} {would}expired, {_describe_files(expiry.deleted)} {would}deleted"
    if references := expiry.references:
        kind = "branch or tag" if len(references) == 1 else "branches or tags"
        yield f"{len(references):,} {kind} {would}removed: {', '.join(references)}"


def _describe_compaction(result: CompactionResult) -> Iterator[str]:
    before = f"{format_count(result.files_before, 'data file')} ({format_bytes(result.bytes_before)})"
    after = f"{before} became {result.files_after:,} ({format_bytes(result.bytes_after)})"
    yield after if result.files_before else "0 data files compacted"
    if result.delete_files or result.deleted_rows:
        deleted = format_count(result.deleted_rows, "deleted row")
        yield f"{format_count(result.delete_files, 'delete file')} and {deleted} removed"
    if result.dropped:
        yield f"{format_count(result.dropped, 'group')} of files left, because another writer has changed them"
    if result.failed:
        yield f"{format_count(result.failed, 'group')} of files failed: the end of the log says why"
    if result.debt and result.groups + result.dropped + result.failed == 0:
        yield f"{format_bytes(result.debt)} are left: the budget is too small for a group of files"
    elif result.debt:
        yield f"{format_bytes(result.debt)} are left{'' if result.failed else '. Repeat the command to continue'}"


def _describe_orphans(found: OrphanFiles, would: str) -> Iterator[str]:
    if found.must_stay:
        yield "no file is deleted: something outside may need it, because gc.enabled is false or the catalog is Nessie"
        return
    yield f"{_describe_files(found.void)} {would}deleted, of transactions that can no longer be committed"
    if found.dropped:
        yield f"{_describe_files(found.dropped)} {would}deleted, of dropped tables"
    if found.unknown:
        yield f"{_describe_files(found.unknown)} {would}deleted, that the connector does not know"
    if log := found.foreign_log:
        yield f"all others are kept: {log} is the log of another table format, which may refer to them"
    for uuid, files in found.others.items():
        yield f"{_describe_files(files)} kept, of another table (uuid {uuid}): {_date(files)}"


def _date(files: Sequence[StoredFile]) -> str:
    newest = max((file.modified for file in files if file.modified), default=None)
    return f"the newest is of {newest:%Y-%m-%d}" if newest else "their age is unknown"


def _list_files(files: Sequence[StoredFile]) -> Iterator[str]:
    yield from (f"  {file.location}" for file in files[:LISTED])
    if len(files) > LISTED:
        yield f"  and {len(files) - LISTED:,} more: --json lists all"


def _describe_files(files: Sequence[StoredFile]) -> str:
    size = f" ({format_bytes(_sum(files))})" if files else ""
    return f"{format_count(len(files), 'file')}{size}"


def _sum(files: Sequence[StoredFile]) -> int:
    return sum(file.size for file in files)


def _encode_outcome(action: Action, outcome: ActionOutcome) -> dict[str, Any]:
    encoded: dict[str, Any] = {"action": action, "isFinished": is_finished(outcome)}
    match outcome:
        case CompactionPlan():
            planned = {"files": outcome.files, "bytes": outcome.size, "rows": outcome.rows}
            return encoded | planned | {"groups": len(outcome.groups)}
        case CompactionResult():
            return encoded | _encode_compaction(outcome)
        case ExpiryOutcome(snapshots, deleted, references):
            return encoded | {"snapshots": snapshots, "references": list(references), **_encode_deleted(deleted)}
        case OrphanFiles():
            kinds = {"void": outcome.void, "dropped": outcome.dropped, "unknown": outcome.unknown}
            others = [{"uuid": uuid, **_encode_size(files)} for uuid, files in outcome.others.items()]
            sizes = {name: _encode_size(files) for name, files in kinds.items()}
            kept = {"otherTables": others, "foreignLog": outcome.foreign_log or None, "mustStay": outcome.must_stay}
            return encoded | sizes | kept | _encode_deleted(outcome.deletable)
        case ManifestPlan():
            replaced, groups = len(outcome.replaced), len(outcome.groups)
            return encoded | {"replaced": replaced, "written": groups, "bytes": outcome.size}
        case Managed():
            return encoded | {"isManaged": True}
        case Unfinished(deleted):
            return encoded | _encode_deleted(deleted)


def _encode_compaction(result: CompactionResult) -> dict[str, Any]:
    return {
        "groups": result.groups,
        "files": result.files_before,
        "bytes": result.bytes_before,
        "rows": result.rows,
        "newFiles": result.files_after,
        "newBytes": result.bytes_after,
        "deleteFiles": result.delete_files,
        "deletedRows": result.deleted_rows,
        "droppedGroups": result.dropped,
        "failedGroups": result.failed,
        "debtBytes": result.debt,
    }


def _encode_deleted(files: Sequence[StoredFile]) -> dict[str, Any]:
    return {**_encode_size(files), "deleted": [file.location for file in files]}


def _encode_size(files: Sequence[StoredFile]) -> dict[str, int]:
    return {"files": len(files), "bytes": _sum(files)}
