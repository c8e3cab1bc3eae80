"""Tells which files can never be committed, by their names alone.

The name of each file of a transaction shows its writer, its table, and the fence value on which it was staged
(`FileOrigin`). A transaction can be committed only while the table's property has this value, and the property never
has the same value twice. So when the property has passed the value of a file, there are two cases: the file was
committed, and a snapshot refers to it; or it can never be committed, because a process that still needs it is fenced.
The same is true for the manifests of a commit: their names show the value that the commit asserts.

The files of compactions have no fence value. Their names show when they were begun, at the earliest when the snapshot
was made that they were begun from. A compaction sends no commit if the current snapshot is more than MAX_AGE younger
than its files, and its commit asserts the main branch that it has loaded. So once the current snapshot is younger than
a file by more than that, there are the same two cases, whatever the clocks of machines show. It must be much younger,
because an operator or another engine may have rolled the table back to an older snapshot. And by this machine's clock,
the file must be old too: a clock that was days ahead may have dated the snapshot.
"""

import time
from collections.abc import Callable
from typing import Final

from pyiceberg.table import Table

from connector.iceberg.commits.compaction_commit import MAX_AGE
from connector.iceberg.fences import fence
from connector.iceberg.fences.file_names import CompactionOrigin, FileOrigin
from connector.iceberg.metadata.table_properties import find_generation

COMPACTION_AGE: Final = 24 * MAX_AGE  # milliseconds


class VoidFiles:
    """The files of a table that can never be committed to it any more."""

    def __init__(self, table: Table, materialization: str, has_passed: Callable[[str, str], bool]) -> None:
        """`materialization` is the table's task. `has_passed` compares the fence value of a file with the recorded one:
        see `passed_values`."""
        self._table = table
        self._generation = find_generation(table, materialization)
        self._hash = fence.materialization_hash(materialization)
        self._has_passed = has_passed

    def has(self, name: str) -> bool:
        """Whether a file of this name is one of them."""
        origin = FileOrigin.of(name)
        return self._is_of_transaction(origin) if origin else self._is_of_late_compaction(name)

    def _is_of_transaction(self, origin: FileOrigin) -> bool:
        is_own = origin.writer_hash.startswith(self._hash)
        if is_own and origin.table_uuid in self._generation.former:
            return True  # nothing from before a backfill can be committed any more
        # Only the owner of a table backfills it, so for other tasks its rows have one generation.
        uuid = self._generation.uuid if is_own else str(self._table.metadata.table_uuid)
        recorded = self._table.properties.get(origin.property_name)
        # Without a value, the first transaction of the writer may still be committed.
        return origin.table_uuid == uuid and recorded is not None and self._has_passed(origin.prev, recorded)

    def _is_of_late_compaction(self, name: str) -> bool:
        origin, snapshot = CompactionOrigin.of(name), self._table.current_snapshot()
        return (
            origin is not None
            and snapshot is not None
            and origin.table_uuid == str(self._table.metadata.table_uuid)
            and min(snapshot.timestamp_ms, time.time_ns() // 1_000_000) > origin.created_ms + COMPACTION_AGE
        )
