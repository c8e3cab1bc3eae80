"""What the connector's modules ask of the machine: its clocks, its dice, its threads and its connections. All are the
stage's."""

import gc
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from uuid import UUID

import pyiceberg.table.update
import pytest
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3

from connector.config import settings
from connector.encoding.parquet import file_options
from connector.iceberg import perform_changes, session_views
from connector.iceberg.commits import backfill, commit, compaction_commit, reset, retry_commits, snapshot
from connector.iceberg.fences import fence, passed_values
from connector.iceberg.maintenance import compact_table, expire_snapshots, remove_task_orphans, void_files
from connector.iceberg.metadata import snapshot_manifests
from connector.rpc import apply
from connector.session import backlog, committer, loads, progress
from simulation.actors import BEGINNING, Actor, running
from simulation.compacting import compact_names
from simulation.files import keep_in_memory
from simulation.searching import search_names
from simulation.store import StoreIO

T = TypeVar("T")
R = TypeVar("R")


class _Time:
    """Stands for the module `time`."""

    @staticmethod
    def monotonic() -> float:
        return running().stage.now

    @staticmethod
    def time_ns() -> int:
        return int((running().stage.now + running().clock_skew) * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        running().sleep(seconds)


class _Datetime:
    """Stands for the class `datetime` where PyIceberg commits to a Local catalog: in the process's own time."""

    @staticmethod
    def now(_zone: tzinfo | None = None) -> datetime:
        return datetime.fromtimestamp(_Time.time_ns() / 1e9 if Actor.present else BEGINNING, UTC)


class _Random:
    """Stands for the modules `random`, `secrets` and `uuid`."""

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return running().stage.random.uniform(low, high)

    @staticmethod
    def token_hex(size: int) -> str:
        return running().stage.random.randbytes(size).hex()

    @staticmethod
    def uuid4() -> UUID:
        return running().stage.uuid()


class _Lock:
    """Stands for `threading.Lock`."""

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        if self._is_held:
            running().wait_for(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class _Condition:
    """Stands for `threading.Condition`: where threads may stall, they may do so before its block. No boundary is in the
    block, so nobody waits for it."""

    def __enter__(self) -> None:
        if running().stage.stalls:
            running().pause()

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass


def _in_threads(call: Callable[[T], R], things: Iterable[T], name: str) -> list[R]:
    return running().map_in_threads(call, things, name)


def _one_by_one(call: Callable[[T], R], things: Iterable[T], _name: str, _at_once: int = 0) -> list[R]:
    return [call(thing) for thing in things]


class _StartedCalls:
    """Stands for calls in threads: they are made when they are waited for."""

    def __init__(self, _limit: int) -> None:
        self._started: list[Callable[[], object]] = []

    def start(self, call: Callable[[], object], _weight: int) -> None:
        self._started.append(call)

    def check(self) -> None:
        pass

    def finish(self) -> None:
        started, self._started = self._started, []
        for call in started:
            call()


def _files_under(store: FileIO, directory: str) -> Iterator[str]:
    """Stands for the listing of a file system."""
    assert isinstance(store, StoreIO)
    return store.list(directory)


def _open_catalog(_config: object) -> Any:
    return running().catalog


def _remember(patch: pytest.MonkeyPatch) -> None:
    """What is dear, and the same every time."""
    copy, parse = TableMetadataV2.model_copy, settings.parse
    parsed: dict[str, Any] = {}

    def parse_once(endpoint: Any, resources: Any) -> Any:
        text = json.dumps([endpoint, resources])
        if text not in parsed:
            parsed[text] = parse(endpoint, resources)
        return parsed[text]

    # Nobody changes what is in it in place.
    for kind in (TableMetadataV2, TableMetadataV3):
        patch.setattr(kind, "model_copy", lambda metadata, **how: copy(metadata, update=how.get("update")))
    patch.setattr(apply, "parse", parse_once)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A schedule makes little garbage that refers to itself."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


TIMED: Final = (
    commit,
    committer,
    compact_table,
    compaction_commit,
    expire_snapshots,
    perform_changes,
    progress,
    retry_commits,
    session_views,
    snapshot,
    void_files,
)


@contextmanager
def simulated(*, with_avro: bool = False) -> Iterator[pytest.MonkeyPatch]:
    """The environment; what a test patches beyond it is undone with it."""
    with pytest.MonkeyPatch.context() as patch:
        _remember(patch)
        search_names(patch)
        compact_names(patch)
        if not with_avro:
            keep_in_memory(patch)
        for name, fake, modules in (
            ("time", _Time, TIMED),
            ("random", _Random, (retry_commits, backlog)),
            ("secrets", _Random, (fence, passed_values)),
            ("uuid", _Random, (backfill, snapshot, snapshot_manifests, file_options, loads)),
            ("datetime", _Datetime, (pyiceberg.table.update, reset)),
        ):
            for module in modules:
                patch.setattr(module, name, fake)
        for module in [module for name, module in sys.modules.items() if name.startswith("connector.")]:
            if hasattr(module, "map_in_threads"):
                patch.setattr(module, "map_in_threads", _one_by_one)
        patch.setattr(snapshot, "threading", SimpleNamespace(Lock=_Lock))
        patch.setattr(committer, "threading", SimpleNamespace(Condition=_Condition))
        patch.setattr(commit, "map_in_threads", _in_threads)  # each table of a session
        patch.setattr(apply, "map_in_threads", _in_threads)
        patch.setattr(loads, "StartedCalls", _StartedCalls)
        patch.setattr(remove_task_orphans, "files_under", _files_under)
        patch.setattr(apply, "open_catalog", _open_catalog)
        logging.disable()
        try:
            with _seldom_collected():
                yield patch
        finally:
            logging.disable(logging.NOTSET)
