"""The health of a table as text and as JSON, with sizes and ages as people read them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from connector.host.logs import format_bytes
from connector.iceberg.maintenance.compaction_plan import CompactionPlan
from connector.iceberg.maintenance.table_health import LastCompaction, TableHealth

UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def describe_rows(rows: int, delete_files: int, health: TableHealth | None) -> str:
    """Describe the rows that readers see, and the deleted ones among those in the data files."""
    if not delete_files:
        return f"{rows:,}"
    if health is None or health.visible_rows is None:
        return f"{rows:,}, including rows that delete files delete"
    return f"{health.visible_rows:,} ({health.deleted_rows:,} more are deleted, but still in data files)"


def describe_health(health: TableHealth) -> Iterator[str]:
    """Describe what readers pay for, in several lines."""
    yield f"  small files  {health.small_files:,} below half of the target size, {format_bytes(health.target_size)}"
    debt, old, metadata = health.debt, health.old, health.metadata
    yield f"  debt         {_describe_debt(debt)}"
    if health.orphan_days is not None:
        yield f"  orphans      AWS Glue deletes orphan files that are older than {health.orphan_days} days"
    if old.files:
        count = format_count(old.files, "data file")
        yield f"  old files    {count} with another partition spec or sort order, {format_bytes(old.size)}"
    yield f"  compacted    {_describe_compaction(health.last_compaction) if health.last_compaction else 'not lately'}"
    manifests = f"{format_count(metadata.manifests, 'manifest')}, {format_bytes(metadata.manifest_bytes)}"
    yield f"  metadata     {manifests}, and a metadata file of {format_bytes(metadata.metadata_bytes)}"


def _describe_debt(debt: CompactionPlan) -> str:
    if debt.is_managed:
        return "none: AWS Glue compacts this table, so the connector does not"
    return f"{format_bytes(debt.size)} in {format_count(debt.files, 'data file')} to compact" if debt.files else "none"


def _describe_compaction(last: LastCompaction) -> str:
    files = f"{format_count(last.files_before, 'file')} with {format_bytes(last.bytes_before)}"
    after = f"{last.files_after:,} with {format_bytes(last.bytes_after)}"
    return f"{last.at:%Y-%m-%d %H:%M:%S} UTC ({describe_age(last.at)}): {files} became {after}"


def encode_health(health: TableHealth) -> dict[str, Any]:
    """Return the health of a table as a JSON value."""
    last, metadata = health.last_compaction, health.metadata
    return {
        "visibleRows": health.visible_rows,
        "deletedRows": health.deleted_rows,
        "targetBytes": health.target_size,
        "smallFiles": health.small_files,
        "debt": {
            "files": health.debt.files,
            "rows": health.debt.rows,
            "bytes": health.debt.size,
            "isManaged": health.debt.is_managed,
        },
        "orphanDays": health.orphan_days,
        "oldFiles": {"files": health.old.files, "bytes": health.old.size},
        "lastCompaction": last
        and {
            "at": last.at.isoformat(),
            "filesBefore": last.files_before,
            "filesAfter": last.files_after,
            "bytesBefore": last.bytes_before,
            "bytesAfter": last.bytes_after,
        },
        "manifests": metadata.manifests,
        "manifestBytes": metadata.manifest_bytes,
        "metadataBytes": metadata.metadata_bytes,
    }


def describe_age(at: datetime) -> str:
    """Say how long ago this was, in its largest unit."""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    unit, length = next((each for each in UNITS if seconds >= each[1]), UNITS[-1])
    number = seconds // length
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


def format_count(number: int, name: str) -> str:
    """Return a number of things, such as `1 row` or `2 rows`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"
