"""What a catalog's service does with a table by itself, if its operator has asked for it. AWS Glue calls these jobs
table optimizers."""

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from pyiceberg.table import Table

from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

DEFAULT_DAYS: Final = 3
SAFE_DAYS: Final = 30  # as docs/healthy-tables.md advises for the jobs of other programs, too


class TableOptimizer(StrEnum):
    """The optimizers that the connector asks for, under Glue's names."""

    COMPACTION = "compaction"
    ORPHAN_FILES = "orphan_file_deletion"


class OptimizerCatalog:
    """A catalog whose service may have table optimizers."""

    def read_optimizer(self, table: TableIdentifier, optimizer: TableOptimizer) -> Mapping[str, Any] | None:
        """Return the configuration of an optimizer of a table. None if it is not enabled, or is not known."""
        raise NotImplementedError


def is_compacted_by_service(table: Table) -> bool:
    """Whether the catalog's service compacts the table. This sends a request."""
    return _read(table, TableOptimizer.COMPACTION) is not None


def find_orphan_days(table: Table) -> int | None:
    """Return the age in days at which the catalog's service deletes orphan files of the table. None if it does not.
    This sends a request."""
    configuration = _read(table, TableOptimizer.ORPHAN_FILES)
    if configuration is None:
        return None
    of_iceberg = configuration.get("orphanFileDeletionConfiguration", {}).get("icebergConfiguration", {})
    return int(of_iceberg.get("orphanFileRetentionPeriodInDays", DEFAULT_DAYS))


def warn_of_deleted_orphans(table: Table) -> None:
    """Warn if the catalog's service deletes orphan files so early that they may be staged rows."""
    days = find_orphan_days(table)
    if days is not None and days < SAFE_DAYS:
        log.warning(
            "table %s: AWS Glue deletes files that are older than %d days and that no snapshot refers to. These may "
            "be rows of this task, if it was stopped for as long, or if the table has refused commits for as long. Set "
            "orphanFileRetentionPeriodInDays of the table's optimizer to %d or more.",
            TableIdentifier.of(table),
            days,
            SAFE_DAYS,
        )


def _read(table: Table, optimizer: TableOptimizer) -> Mapping[str, Any] | None:
    if not isinstance(table.catalog, OptimizerCatalog):
        return None
    return table.catalog.read_optimizer(TableIdentifier.of(table), optimizer)
