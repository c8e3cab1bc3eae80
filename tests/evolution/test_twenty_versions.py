"""One table through twenty versions of its collection, in any order and with crashes between any two actions: after
each it is what a model says. What becomes of it is the seed's."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from evolution.crashes import Moments, open_mortal
from evolution.evolving_task import EvolvingTask
from evolution.local_task import LocalTask

VERSIONS: Final = 20
SEEDS: Final = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_is_what_the_model_says_after_each_version(tmp_path: Path, seed: int) -> None:
    moments = Moments()
    with closing(open_mortal(tmp_path, moments)) as catalog:
        evolving = EvolvingTask(LocalTask(tmp_path, catalog), moments, Random(seed))
        for _ in range(VERSIONS):
            evolving.publish()
            evolving.check()
