"""Defects of the crash scenarios that the simulation has to find, too."""

import builtins
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from crash import backfill_defects, compaction_defects, defects, update_defects, writing_defects


def _plant(name: str, patch: pytest.MonkeyPatch) -> None:
    def swap(owner: object, swapped: str, replacement: object) -> None:
        patch.setattr(owner, swapped, replacement, raising=not hasattr(builtins, swapped))

    for module in (backfill_defects, compaction_defects, defects, update_defects, writing_defects):
        patch.setattr(module, "swap", swap)
    defects.DEFECTS[name]()


CRASH_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    name: partial(_plant, name)
    for name in (
        "advances_without_files",
        "carries_no_deletes_over",
        "checks_no_uuid",
        "cleans_up_when_in_doubt",
        "commits_without_looking",
        "dates_by_its_own_clock",
        "deletes_in_another_partition",
        "drops_deletes_of_others",
        "drops_what_others_appended",
        "finishes_its_own_range_only",
        "finishes_the_first_child_only",
        "forgets_older_positions",
        "ignores_the_fence",
        "looks_at_its_own_range_only",
        "loses_deletes",
        "removes_the_rows_before_it_adds_others",
        "reuses_manifests",
        "shows_at_start_commit",
        "shows_while_storing",
        "takes_young_files_for_orphans",
    )
}
