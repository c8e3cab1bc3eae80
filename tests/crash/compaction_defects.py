"""What could be wrong with compaction's commit."""

from typing import Any

from connector.iceberg.commits import compaction_commit
from connector.iceberg.maintenance import void_files
from connector.iceberg.metadata.manifest_merging import remove_files
from crash.faults import swap
from support import private_connector


def keeps_only_what_it_has_read() -> None:
    def without_others(*about: Any) -> Any:
        return [], remove_files(*about[:3])[1]

    swap(compaction_commit, "remove_files", without_others)


def carries_no_deletes_over() -> None:
    swap(*private_connector.CARRY_DELETES_OVER, lambda *_: {})


def takes_young_files_for_orphans() -> None:
    swap(void_files, "COMPACTION_AGE", -(1 << 60))


DEFECTS = {
    defect.__name__: defect
    for defect in (keeps_only_what_it_has_read, carries_no_deletes_over, takes_young_files_for_orphans)
}
