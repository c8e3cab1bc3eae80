"""Compaction in a connector process: off, unless asked for. Then it follows each commit, and it may be held or die."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from connector.encoding.rewriting.file_groups import CompactedGroup
from connector.iceberg.commits.compaction_commit import CompactionCommit
from connector.iceberg.maintenance import background_compaction, compaction_plan
from connector.iceberg.maintenance.background_compaction import BackgroundCompaction
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds
from connector.model.table_identifier import TableIdentifier
from crash.faults import Faults, swap
from crash.ledger import BALANCES, POSTINGS
from support import private_connector

TABLES: Final = (BALANCES, POSTINGS)  # that are compacted
COMPACTS: Final = "compacts"  # strikes a process that starts: it compacts its tables
KILL_BEFORE_COMPACTION: Final = "kill-before-compaction"
KILL_AFTER_COMPACTION: Final = "kill-after-compaction"


def held(table: str) -> str:
    """The fault of a compaction of this table that waits before its commit, as long as `held_in` exists."""
    return f"compaction-of-{table}-is-held"


def held_in(faults: Faults) -> Path:
    """A file that exists while a compaction is held. It names the compaction's sources."""
    return faults.directory / "held"


def guard_compaction() -> None:
    faults = Faults.of_this_process()
    if not faults.strikes(COMPACTS):
        swap(background_compaction, "FIRST", "no range begins with this")
        return
    swap(background_compaction, "COMMITS", 1)
    swap(background_compaction, "REST", 0)
    swap(compaction_plan, "GROWTH", 1)
    swap(*private_connector.MOST_ROWS_LOST, 1)
    swap(CompactionThresholds, "min_files", 2)
    note_commit, commit = BackgroundCompaction.note_commit, CompactionCommit.commit

    def note_some(self: BackgroundCompaction, path: TableIdentifier, properties: Mapping[str, str], count: int) -> None:
        if path.name in TABLES:
            note_commit(self, path, properties, count)

    swap(BackgroundCompaction, "note_commit", note_some)

    def guarded(self: CompactionCommit, groups: Sequence[CompactedGroup]) -> Any:
        _die(faults, KILL_BEFORE_COMPACTION)
        if faults.strikes(held(self._base.path.name)):
            _hold(faults, [source.path for each in groups for source in each.group.sources])
            while held_in(faults).exists():
                time.sleep(0.01)
        committed = commit(self, groups)
        if committed.groups:
            _die(faults, KILL_AFTER_COMPACTION)
        return committed

    swap(CompactionCommit, "commit", guarded)


def _hold(faults: Faults, sources: Sequence[str]) -> None:
    new = held_in(faults).with_suffix(".new")
    new.write_text("\n".join(sources))
    new.rename(held_in(faults))


def _die(faults: Faults, fault: str) -> None:
    if faults.strikes(fault):
        os.kill(os.getpid(), signal.SIGKILL)
