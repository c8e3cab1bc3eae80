"""What a process and all its descendants use, read from /proc."""

import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from signal import SIGCONT, SIGSTOP, Signals
from types import TracebackType
from typing import Final, Self

INTERVAL: Final = 0.25  # seconds
PROCESSOR_INTERVAL: Final = 0.02  # seconds: a task of maintenance takes some hundredths
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Bytes: every process's resident memory added up, and with shared pages divided among those that share them."""

    rss: int
    pss: int


class Kind(Enum):
    """What a process of the connector's tree is for."""

    CONNECTOR = auto()
    JVM = auto()
    PYTHON_WORKERS = auto()


class _Sampler(ABC):
    """Samples a process tree in regular intervals while it is entered."""

    def __init__(self, root: int, interval: float) -> None:
        self._root = root
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._sample()  # all that is measured may be shorter than an interval

    def _run(self) -> None:
        while not self._done.wait(self._interval):
            self._sample()

    @abstractmethod
    def _sample(self) -> None: ...


class PeakMemory(_Sampler):
    """Samples a process tree's memory while it is entered."""

    def __init__(self, root: int) -> None:
        super().__init__(root, INTERVAL)
        self._samples = [Memory(0, 0)]
        self._shares: Counter[Kind] = Counter()

    @property
    def peak(self) -> Memory:
        peak = Memory(max(m.rss for m in self._samples), max(m.pss for m in self._samples))
        assert peak.rss, "no sample has met the processes"
        return peak

    @property
    def shares(self) -> Mapping[Kind, int]:
        """PSS by kind of process, when all of them together had most."""
        return self._shares

    def _sample(self) -> None:
        by_process = {process: _memory_of(process) for process in _tree(self._root)}
        self._samples.append(_total(by_process.values()))
        shares: Counter[Kind] = Counter()
        for process, used in by_process.items():
            shares[self._kind(process)] += used.pss
        self._shares = max(self._shares, shares, key=Counter.total)

    def _kind(self, process: Path) -> Kind:
        if process.name == str(self._root):
            return Kind.CONNECTOR
        return Kind.JVM if _program(process) == "java" else Kind.PYTHON_WORKERS


class ProcessorTime(_Sampler):
    """Samples a process tree's user and system time while it is entered, also that of processes that end meanwhile.

    A process that ends loses what it used since its last sample.
    """

    def __init__(self, root: int) -> None:
        super().__init__(root, PROCESSOR_INTERVAL)
        self._seconds: dict[tuple[int, str], float] = {}  # by id and start, since ids are used again
        self._before_idle: dict[tuple[int, str], float] = {}

    @property
    def seconds(self) -> float:
        """All processes together."""
        return sum(list(self._seconds.values()))

    @property
    def seconds_when_idle(self) -> float:
        """Those of processes since they run only while a core is idle, as the workers of maintenance do. A worker may
        have worked for transactions before."""
        return sum(self._seconds[process] - before for process, before in list(self._before_idle.items()))

    def _sample(self) -> None:
        for pid in _descendants(self._root):
            if stat := _stat(Path(f"/proc/{pid}")):
                process, seconds = (pid, stat[19]), sum(map(int, stat[11:13])) / TICKS
                if int(stat[38]) == os.SCHED_IDLE:
                    self._before_idle.setdefault(process, self._seconds.get(process, 0.0))
                self._seconds[process] = seconds


def _descendants(root: int) -> Iterator[int]:
    """Yield the tree's processes. Unlike `_tree`, this reads nothing of other processes."""
    yield root
    threads: list[Path] = []
    with suppress(FileNotFoundError):  # it ended meanwhile
        threads += Path(f"/proc/{root}/task").iterdir()
    for thread in threads:
        for child in _read(thread / "children").split():
            yield from _descendants(int(child))


def memory(root: int) -> Memory:
    return _total(map(_memory_of, _tree(root)))


def _memory_of(process: Path) -> Memory:
    amounts = {"Rss": 0, "Pss": 0}
    for line in _read(process / "smaps_rollup").splitlines():
        name, _, amount = line.partition(":")
        if name in amounts:
            amounts[name] = int(amount.split()[0]) << 10
    return Memory(amounts["Rss"], amounts["Pss"])


def _total(of_processes: Iterable[Memory]) -> Memory:
    each = list(of_processes)
    return Memory(sum(memory.rss for memory in each), sum(memory.pss for memory in each))


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, of its ended and awaited processes too."""
    return sum(sum(map(int, _stat(process)[11:15])) for process in _tree(root)) / TICKS


def own_cpu_seconds(pid: int) -> float:
    """User and system time of one process, without its children."""
    return sum(map(int, _stat(Path(f"/proc/{pid}"))[11:13])) / TICKS


def stop(root: int) -> frozenset[int]:
    """Let no process of the tree run until `resume`. Return the processes."""
    # Two passes: one may be born during the first.
    return _send(_tree_ids(root), SIGSTOP) | _send(_tree_ids(root), SIGSTOP)


def resume(processes: Iterable[int]) -> None:
    """Let stopped processes run again, also if their root has ended."""
    _send(processes, SIGCONT)


def _tree_ids(root: int) -> list[int]:
    return [int(process.name) for process in _tree(root)]


def _send(processes: Iterable[int], signal: Signals) -> frozenset[int]:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal)
    return frozenset(processes)


def children(of: int) -> dict[str, int]:
    """The processes that one has started itself, by the names of their programs."""
    return {_program(Path(f"/proc/{pid}")): pid for pid in _children().get(of, ())}


def _tree(root: int) -> Iterator[Path]:
    children = _children()
    wanted = [root]
    while wanted:
        pid = wanted.pop()
        yield Path(f"/proc/{pid}")
        wanted += children.get(pid, ())


def _children() -> Mapping[int, Sequence[int]]:
    found: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if stat := _stat(process):
            found.setdefault(int(stat[1]), []).append(int(process.name))
    return found


def _program(process: Path) -> str:
    return Path(_read(process / "cmdline").partition("\0")[0]).name


def _stat(process: Path) -> list[str]:
    """The fields of proc(5)'s stat from the third (state) on: the second, the command, may have spaces in it."""
    return _read(process / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended meanwhile
