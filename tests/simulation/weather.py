"""What kinds of trouble a schedule has, and how much: drawn anew for each, so that every kind is also met alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from protocol.flow import Range
from simulation.task import TOPOLOGIES


@dataclass(frozen=True)
class Weather:
    """Probabilities, and what a schedule is made of."""

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
    # of a process
    going_on: float  # although its runtime has given it up
    collecting: float  # the others are too slow for it to matter
    # of the schedule
    sessions: int  # before the last one
    topologies: Sequence[Sequence[Range]]
    forks: bool  # it has several logs, which should never be


def weather(random: Random) -> Weather:
    drawn = Weather(
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
        going_on=random.choice((0.3, 0.7)),
        collecting=random.choice((0.3, 1.0)),
        sessions=random.choice((1, 1, 2, 2, 3)),
        topologies=random.choice((TOPOLOGIES, random.choices(TOPOLOGIES, k=2))),
        forks=random.random() < 0.35,
    )
    calm = replace(drawn, load=0.0, commit=0.0, store=0.0, replacing=0.0, giving_up=0.05)
    match random.random():
        case share if share < 0.3:  # while a table refuses commits, sessions follow each other quickly
            return replace(calm, begins_refused=0.8, sessions=random.choice((2, 3, 4)))
        case share if share < 0.4:  # an operator is kept busy
            several = replace(calm, giving_up=random.choice((0.02, 0.05)), sessions=3, resetting=1.0)
            return replace(several, forks=random.random() < 0.5, restoring=random.choice((0.0, 0.3, 0.7)))
        case _:
            return drawn
