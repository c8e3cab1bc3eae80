"""Compaction without Spark: groups are rewritten in this process, and something may happen meanwhile."""

from collections.abc import Callable, Generator, Iterable
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table

from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import FailedGroup, FileGroup, GroupOutcome
from connector.encoding.rewriting.group_compaction import compact_group
from connector.host.errors import ConnectorError
from connector.host.refresh import Lease, Refreshed
from connector.iceberg.maintenance.compact_table import CompactionBudget, PlanTable, TableCompactor
from connector.iceberg.maintenance.compaction_plan import plan_compaction
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from support.tables.planted_faults import plant, refuse

# Everything is merged, and a file is rewritten for one deleted row in a hundred, whatever its age.
EAGER: Final = {
    "flow.compaction.min-input-files": "2",
    "flow.compaction.delete-ratio-threshold": "0.01",
    "flow.compaction.bytes-per-commit": "0",
}


def compact_here(
    target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
) -> Generator[GroupOutcome, None, None]:
    """What Spark's tasks do."""
    io = load_file_io(dict(access.current().value), target.destination.location)
    return (_compact_one(io, target, group) for group in groups)


def _compact_one(io: FileIO, target: TargetFiles, group: FileGroup) -> GroupOutcome:
    try:
        return compact_group(io, target, group)
    except ConnectorError as error:
        return FailedGroup(group, error)


def compact(
    catalog: Catalog, path: TableIdentifier, *meanwhile: Callable[[], object], plan: PlanTable = plan_compaction
) -> CompactionResult:
    """Compact what is planned now. When the new files are written, and before the commit, something happens."""

    def compact_then(
        target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
    ) -> Generator[GroupOutcome, None, None]:
        yield from list(compact_here(target, groups, access))
        for happen in meanwhile:
            happen()

    table = catalog.load_table(path)
    size = plan(table, ManifestCache().list_files(table)).size
    return TableCompactor(catalog, compact_then, catalog.load_table, plan=plan).compact(
        path, CompactionBudget(size=size)
    )


def expire_access(table: Table) -> Lease[Properties]:
    """The access to a table's files, with credentials that have expired. The catalog does not find the table again."""
    plant(table.catalog, [refuse(NoSuchTableError("gone"))], "load_table")
    return Lease.until(Properties(), 0.0)
