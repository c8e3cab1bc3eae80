"""Defects of the crash scenarios that the simulation has to find, too."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from crash import defects, update_defects


def _plant(name: str, patch: pytest.MonkeyPatch) -> None:
    for module in (defects, update_defects):
        patch.setattr(module, "swap", patch.setattr)
    defects.DEFECTS[name]()


CRASH_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    name: partial(_plant, name)
    for name in (
        "advances_without_files",
        "cleans_up_when_in_doubt",
        "drops_deletes_of_others",
        "drops_what_others_appended",
        "finishes_the_first_child_only",
        "shows_at_start_commit",
    )
}
