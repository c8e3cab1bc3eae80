"""What kinds of trouble a schedule has, and how much: drawn anew for each, so that every kind is also met alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from protocol.flow import Range
from simulation.task import TOPOLOGIES


class Climate(Enum):
    MIXED = "everything now and then"
    REFUSALS = "tables refuse commits for longer than a session lives, and two topologies take turns"
    OUTAGES = "all tables refuse commits at once, and are retried beside transactions"
    RESETS = "an operator is kept busy by several logs of one task"


@dataclass(frozen=True)
class Weather:
    """Probabilities, and what a schedule is made of."""

    climate: Climate
    # of a request
    load: float
    commit: float
    store: float
    # of a step
    giving_up: float  # a session, or a process that somebody has started by hand
    delivering: float  # what was delayed on its way
    foreign: float  # another engine comes to a table
    replacing: float  # and makes it anew
    refusing: float  # a table takes no commits
    yielding: float  # it does again
    # of a session
    begins_refused: float
    specifying: float  # its user has changed the task
    restoring: float  # of a task: its log is gone, and there is an older copy
    resetting: float  # its operator has found it fenced
    cleaning: float  # another engine removes staged files as orphans, while the task is stopped for days
    # of a process
    stalling: float  # at a boundary, for minutes
    going_on: float  # although its runtime has given it up
    collecting: float  # the others are too slow for it to matter
    retrying: float  # between its transactions
    compacting: float  # beside its transactions
    idling: float  # for hours, before a transaction
    # of the schedule
    transactions: Sequence[int]  # of a session
    sessions: int  # before the last one
    topologies: Sequence[Sequence[Range]]
    forks: bool  # it has several logs, which should never be


def weather(random: Random) -> Weather:
    drawn = Weather(
        climate=Climate.MIXED,
        load=random.choice((0.0, 0.0, 0.03)),
        commit=random.choice((0.0, 0.1, 0.4)),
        store=random.choice((0.0, 0.0, 0.02)),
        giving_up=random.choice((0.0, 0.02, 0.05)),
        delivering=random.choice((0.02, 0.1)),
        foreign=random.choice((0.0, 0.0, 0.03)),
        replacing=random.choice((0.0, 0.0, 0.0, 0.02)),
        refusing=random.choice((0.0, 0.0, 0.0, 0.05)),
        yielding=random.choice((0.01, 0.05)),
        begins_refused=random.choice((0.0, 0.0, 0.4)),
        specifying=random.choice((0.0, 0.0, 0.3)),
        restoring=0.0,
        resetting=random.choice((0.3, 0.7)),
        cleaning=random.choice((0.0, 0.0, 0.0, 0.5)),
        stalling=0.0,
        going_on=random.choice((0.3, 0.7)),
        collecting=random.choice((0.3, 1.0)),
        retrying=random.choice((0.0, 0.5)),
        compacting=random.choice((0.0, 0.0, 0.0, 0.4, 1.0)),
        idling=random.choice((0.0, 0.0, 0.0, 0.5)),
        transactions=(0, 1, 1, 2),
        sessions=random.choice((1, 1, 1, 1, 2, 2, 3)),
        topologies=random.choice((TOPOLOGIES, random.choices(TOPOLOGIES, k=2))),
        forks=random.random() < 0.35,
    )
    calm = replace(drawn, load=0.0, commit=0.0, store=0.0, replacing=0.0)
    match random.random():
        case share if share < 0.12:
            return _refusals(random, calm)
        case share if share < 0.2:
            return _resets(random, calm)
        case share if share < 0.25:
            return _outages(random, calm)
        case _:
            return drawn


def _refusals(random: Random, calm: Weather) -> Weather:
    return replace(
        calm,
        climate=Climate.REFUSALS,
        giving_up=random.choice((0.01, 0.02)),
        refusing=0.01,
        yielding=random.choice((0.003, 0.01)),
        begins_refused=0.6,
        retrying=0.1,
        specifying=0.0,
        sessions=random.choice((3, 4, 5)),
        topologies=random.sample([*dict.fromkeys(TOPOLOGIES)], 2),
    )


def _resets(random: Random, calm: Weather) -> Weather:
    return replace(
        calm,
        climate=Climate.RESETS,
        giving_up=random.choice((0.02, 0.05)),
        restoring=random.choice((0.0, 0.3)),
        resetting=1.0,
        sessions=3,
        topologies=random.choices(TOPOLOGIES),
        forks=True,
    )


def _outages(random: Random, calm: Weather) -> Weather:
    return replace(
        calm,
        climate=Climate.OUTAGES,
        stalling=random.choice((0.02, 0.06)),
        giving_up=random.choice((0.003, 0.01)),
        foreign=0.0,
        refusing=random.choice((0.01, 0.03)),
        yielding=random.choice((0.02, 0.05)),
        specifying=0.0,
        cleaning=0.0,
        retrying=1.0,
        compacting=0.0,
        idling=0.0,
        transactions=(2, 3, 4),
        sessions=2,
        topologies=random.choices(TOPOLOGIES),
        forks=False,
    )
