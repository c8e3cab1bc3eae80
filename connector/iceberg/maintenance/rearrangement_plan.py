"""Plans a rearrangement: rewrites the data files of a table that do not have its partition spec or its sort order.

Transactions and compactions leave such files as they are, because it can take long to rewrite the whole table. An
operator asks for a rearrangement. It is performed and committed like a compaction.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import PrimitiveType

from connector.host.errors import UserError
from connector.host.groups import divide, group_by
from connector.iceberg.maintenance.compaction_plan import (
    CompactionPlan,
    add_partition_values,
    has_compactable_rows,
    list_candidates,
    make_groups,
    plan_compaction,
    read_thresholds,
)
from connector.iceberg.metadata.listed_files import ListedFile, PositionDeletes
from connector.iceberg.metadata.table_arrangement import find_arrangement_of_all
from connector.model.binding import Arrangement, is_written
from connector.model.table_identifier import TableIdentifier

# A group has so many times the target size. Its rows may be of many partitions, and each gets a file for them.
_LARGER: Final = 8


def plan_rearrangement(table: Table, listed: Sequence[ListedFile]) -> CompactionPlan:
    """Plan the files that do not have the table's partition spec and sort order. If there are none, plan a compaction.

    `listed` are all live files of the current snapshot. UserError if a property is invalid, or if the connector cannot
    make the partitions of all rows.
    """
    if not has_compactable_rows(table):
        return CompactionPlan()
    arrangement = find_arrangement_of_all(table)
    size = _LARGER * read_thresholds(table).target_size
    chosen = [
        together
        for files in group_by(list_old_files(listed, arrangement), attrgetter("partition")).values()
        for together in divide(sorted(files, key=attrgetter("sequence_number")), size, attrgetter("size"))
    ]
    if not chosen:
        return plan_compaction(table, listed)
    _check_spec(table)
    groups = add_partition_values(table, listed, make_groups(PositionDeletes(listed), chosen))
    return CompactionPlan(groups, arrangement)


def list_old_files(listed: Sequence[ListedFile], arrangement: Arrangement) -> Iterator[ListedFile]:
    """Yield the data files that have another arrangement and can be rewritten."""
    for file in list_candidates(listed):
        is_sorted = not arrangement.sort or file.sort_order_id == arrangement.sort_order_id
        if file.partition.spec_id != arrangement.spec_id or not is_sorted:
            yield file


def _check_spec(table: Table) -> None:
    """Raise UserError if a partition field is made from values that the connector does not read: those within a struct,
    and those of a type that only other engines write."""
    types = {column.field_id: column.field_type for column in table.schema().fields}
    for field in table.spec().fields:
        column_type = types.get(field.source_id)
        if isinstance(field.transform, VoidTransform):
            continue
        if not isinstance(column_type, PrimitiveType) or not is_written(column_type):
            raise UserError(
                f"table {TableIdentifier.of(table)}: its files cannot be rewritten for its partition spec, because the "
                f"partition field {field.name!r} is made from a column that only other engines write. Let such an "
                "engine rewrite them (in Spark: CALL system.rewrite_data_files(…, options => map('rewrite-all', "
                "'true')))."
            )
