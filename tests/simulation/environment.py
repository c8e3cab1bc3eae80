"""What the connector's modules ask of the machine: its clocks, its dice and its threads. All are the stage's."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import current_thread
from typing import TypeVar
from uuid import UUID

import pyiceberg.table.update
import pytest
from pyiceberg.io import FileIO

from connector import backlog, committer, progress
from connector.iceberg import bound_table, commit, fence, folding, manifests, orphans, snapshot, stored_files
from simulation.actors import Actor
from simulation.memory import remember
from simulation.store import StoreIO

T = TypeVar("T")
R = TypeVar("R")


def _actor() -> Actor:
    actor = current_thread()
    assert isinstance(actor, Actor), "only simulated processes ask"
    return actor


class _Time:
    """Stands for the module `time`."""

    @staticmethod
    def monotonic() -> float:
        return _actor().stage.now

    @staticmethod
    def time_ns() -> int:
        return int((_actor().stage.now + _actor().clock_skew) * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        _actor().sleep(seconds)


class _Datetime:
    """Stands for the class `datetime` where PyIceberg commits to a Local catalog: in the process's own time."""

    @staticmethod
    def now() -> datetime:
        thread = current_thread()
        return datetime.fromtimestamp(_Time.time_ns() / 1e9 if isinstance(thread, Actor) else 0, UTC)


class _Random:
    """Stands for the modules `random`, `secrets` and `uuid`."""

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return _actor().stage.random.uniform(low, high)

    @staticmethod
    def token_hex(size: int) -> str:
        return _actor().stage.random.randbytes(size).hex()

    @staticmethod
    def uuid4() -> UUID:
        return _actor().stage.uuid()


def _one_by_one(call: Callable[[T], R], things: Iterable[T], _at_once: int, _name: str) -> list[R]:
    return [call(thing) for thing in things]


def _files_under(store: FileIO, directory: str) -> Iterator[str]:
    """Stands for the listing of a file system."""
    assert isinstance(store, StoreIO)
    return store.list(directory)


@contextmanager
def simulated() -> Iterator[pytest.MonkeyPatch]:
    """The environment; what a test patches beyond it is undone with it."""
    with pytest.MonkeyPatch.context() as patch:
        remember(patch)
        for module in (commit, committer, snapshot, progress):
            patch.setattr(module, "time", _Time)
        for module in (commit, backlog):
            patch.setattr(module, "random", _Random)
        patch.setattr(fence, "secrets", _Random)
        for module in (snapshot, manifests):
            patch.setattr(module, "uuid", _Random)
        for module in (commit, bound_table, folding, stored_files):
            patch.setattr(module, "side_by_side", _one_by_one)
        patch.setattr(orphans, "files_under", _files_under)
        patch.setattr(pyiceberg.table.update, "datetime", _Datetime)
        logging.disable()
        try:
            yield patch
        finally:
            logging.disable(logging.NOTSET)
