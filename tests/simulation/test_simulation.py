"""Every row once, in thousands of schedules in which processes die, freeze and wake up, and any answer may be wrong.

Only the machine around the connector is simulated: apply, sessions, fence, state, recovery, commits, the collection of
orphans, the expiry of snapshots and the operator's reset are the shipped code, and the metadata are PyIceberg's. What a
schedule breaks is told with its seed, which replays it: `pytest tests/simulation -n 0 -k lands_once --seed 4711`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

import pytest

from connector.iceberg.fences import fence
from simulation import schedule
from simulation.backfill_defects import BACKFILL_DEFECTS
from simulation.compaction_defects import COMPACTION_DEFECTS
from simulation.conftest import ENOUGH
from simulation.crash_defects import CRASH_DEFECTS
from simulation.defects import DEFECTS
from simulation.environment import simulated
from simulation.found_seeds import OTHER_SEED, read_seeds, record_seed
from simulation.schedule import Outline, Result, Versions
from simulation.task import Kind
from simulation.thread_defects import THREAD_DEFECTS
from simulation.update_defects import UPDATE_DEFECTS
from simulation.vector_defects import VECTOR_DEFECTS
from simulation.weather import Climate

TOLD: Final = """
from simulation import schedule
from simulation.environment import simulated

with simulated():
    for seed in range(40):
        print(*schedule.run(seed).events, sep="\\n")
"""
ALL_DEFECTS: Final = {
    **DEFECTS,
    **UPDATE_DEFECTS,
    **VECTOR_DEFECTS,
    **BACKFILL_DEFECTS,
    **COMPACTION_DEFECTS,
    **CRASH_DEFECTS,
    **THREAD_DEFECTS,
}
NEEDED: Final[Mapping[str, Callable[[Outline], bool]]] = {  # of a schedule, to have what the defect breaks
    **dict.fromkeys(
        (*UPDATE_DEFECTS, "deletes_in_another_partition", "loses_deletes"), lambda outline: outline.has_updates
    ),
    **dict.fromkeys(THREAD_DEFECTS, lambda outline: outline.weather.climate is Climate.OUTAGES),
    **dict.fromkeys((*VECTOR_DEFECTS, "forgets_older_positions"), lambda outline: outline.versions is not Versions.TWO),
    **dict.fromkeys((*COMPACTION_DEFECTS, "takes_young_files_for_orphans"), lambda outline: outline.has_compactions),
    "a_compaction_of_any_age_is_committed": lambda outline: outline.has_compactions and outline.weather.idling > 0,
    **dict.fromkeys(
        (
            "carries_no_deletes_over",
            "deletes_are_carried_over_to_their_old_positions",
            "new_files_have_only_what_the_plan_knew_of_deletes",
            "rows_of_a_source_that_is_gone_come_back",
        ),
        lambda outline: outline.has_compactions and outline.has_updates,
    ),
    **dict.fromkeys(
        ("an_old_state_key_is_a_stranger", "what_was_staged_before_lands_after"),
        lambda outline: outline.weather.specifying > 0,
    ),
    "rows_of_a_former_backfill_are_not_looked_for": lambda outline: (
        outline.has_updates and outline.weather.specifying > 0
    ),
    **dict.fromkeys(
        (
            "delete_files_have_the_current_spec",  # only another engine changes it
            "drops_deletes_of_others",
            "nothing_is_new_after_a_snapshot_that_has_expired",
        ),
        lambda outline: outline.has_updates and outline.weather.foreign > 0,
    ),
    "rejected_rows_land_with_whatever_else_their_writer_lands": lambda outline: Kind.REJECTING in outline.kinds,
    "commits_without_looking": lambda outline: outline.weather.cleaning > 0,
    "deletes_are_carried_over_to_the_partition_of_the_sources": lambda outline: (
        outline.has_compactions and outline.has_updates and outline.weather.foreign > 0  # which changes partition specs
    ),
    "shows_while_storing": lambda outline: not outline.has_updates,  # it also loses what Loads have found
    "loads_see_what_waiting_commits_delete": lambda outline: outline.has_refusals and outline.has_updates,
    "loads_see_rows_of_a_former_key_range_in_any_order": lambda outline: (
        outline.has_refusals and outline.has_updates and outline.weather.sessions > 1  # no table refuses the last one
    ),
    **dict.fromkeys(
        ("a_session_does_not_wait_for_what_was_staged_before", "files_that_wait_are_orphans"),
        lambda outline: outline.weather.climate is Climate.REFUSALS,  # where the many coincidences are frequent
    ),
}
# Of these, the schedules that are searched first: those of most sessions, for a defect that takes several transactions
# of one table to show, or transactions on both sides of an upgrade.
SEARCHED_FIRST: Final[Mapping[str, Callable[[Outline], bool]]] = {
    **dict.fromkeys(
        (
            "a_replaced_vector_stays",
            "files_that_wait_are_orphans",
            "loads_see_rows_of_a_former_key_range_in_any_order",
            "loads_see_what_a_delete_file_of_several_data_files_deletes",
            "loads_see_what_vectors_delete",
            "loads_see_what_waiting_commits_delete",
        ),
        lambda outline: outline.weather.sessions > 3 and len(outline.kinds) == 1,
    ),
    "drops_deletes_of_others": lambda outline: (
        outline.weather.sessions > 1 and len(outline.kinds) == 1 and outline.has_compactions
    ),
    "position_deletes_of_one_file_are_not_taken_over": lambda outline: (
        outline.weather.climate is Climate.REFUSALS and outline.versions is Versions.UPGRADED
    ),
    "deletes_are_carried_over_to_the_partition_of_the_sources": lambda outline: (
        outline.weather.climate is Climate.MIXED and len(outline.kinds) == 1 and outline.versions is Versions.TWO
    ),
}


def test_every_row_of_a_committed_transaction_lands_once(seeds: range) -> None:
    _assert_kept(seeds)


@pytest.mark.slow
def test_every_row_of_a_committed_transaction_lands_once_however_long_one_looks(seeds: range) -> None:
    _assert_kept(seeds)


@pytest.mark.long
@pytest.mark.parametrize("defect", ALL_DEFECTS)
def test_a_planted_defect_is_found(
    defect: str, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    """The recorded seed is tried first. After a change of schedules it may find nothing: then others are searched, some
    for minutes. `scripts/test tests/simulation -k planted --record-seeds` records those that find the defects now."""
    recorded = read_seeds()
    with simulated() as patch:
        ALL_DEFECTS[defect](patch)
        first = [recorded[defect]] if defect in recorded else []
        found = next(_violations(chain(first, _seeds_of(defect))), None)
    assert found
    with simulated():
        assert schedule.run(found.seed).violation is None
    if pytestconfig.getoption("--record-seeds"):
        record_seed(defect, found.seed)
    elif found.seed != recorded.get(defect):
        record_property(OTHER_SEED, f"{defect}: {found.seed}")


def test_no_seed_is_recorded_for_an_unknown_defect() -> None:
    assert read_seeds().keys() <= ALL_DEFECTS.keys()


def test_a_planted_defect_that_fails_by_itself_is_not_found() -> None:
    with simulated() as patch:
        patch.setattr(fence, "remaining_commits", lambda chain: chain)
        with pytest.raises(TypeError, match="takes 1 positional argument"):
            any(_violations(range(ENOUGH)))


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_replays_its_schedule_exactly(seed: int) -> None:
    with simulated():
        assert schedule.run(seed) == schedule.run(seed)


@pytest.mark.long
def test_a_seed_replays_its_schedule_in_another_interpreter_whose_sets_have_another_order() -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = [
        subprocess.check_output([sys.executable, "-c", TOLD], env={**os.environ, **path, "PYTHONHASHSEED": order})
        for order in ("2", "3")
    ]
    assert told[0].count(b"loads table-0") > 100
    assert told[0] == told[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_is_the_same_with_manifests_in_avro(seed: int) -> None:
    with simulated():
        in_memory = schedule.run(seed)
    with simulated(with_avro=True):
        assert schedule.run(seed) == in_memory


def _assert_kept(seeds: range) -> None:
    with simulated():
        broken = list(islice(_violations(seeds), 5))
    if len(seeds) == 1 and broken:
        print(*broken[0].events, sep="\n")
    told = "\n".join(f"--seed {result.seed}: {result.violation}" for result in broken)
    assert not broken, f"promises are broken:\n{told}"


def _seeds_of(defect: str) -> Iterable[int]:
    """Those of schedules that can have what the defect breaks, the likely ones first."""
    needed, first = NEEDED.get(defect, _any), SEARCHED_FIRST.get(defect, _any)
    for is_first in (True, False):
        for seed in range(ENOUGH):
            outline = schedule.outline_of(seed)
            if needed(outline) and first(outline) is is_first:
                yield seed


def _any(_: Outline) -> bool:
    return True


def _violations(seeds: Iterable[int]) -> Iterator[Result]:
    return (result for result in map(schedule.run, seeds) if result.violation)
