"""The seed that has found each planted defect, kept in a file: to search thousands of schedules takes minutes."""

import fcntl
import json
from collections.abc import Mapping
from typing import Final

from support.repository import TESTS

OTHER_SEED: Final = "found by another seed than the recorded one"  # a property of a report: the next run searches, too
FILE: Final = TESTS / "simulation" / "found_seeds.json"


def read_seeds() -> Mapping[str, int]:
    """By defect."""
    with FILE.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        seeds: dict[str, int] = json.load(file)
    return seeds


def record_seed(defect: str, seed: int) -> None:
    """Also while other processes of pytest do."""
    with FILE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        seeds = {**json.load(file), defect: seed}
        file.seek(0)
        file.write(json.dumps(seeds, indent=1, sort_keys=True) + "\n")
        file.truncate()
