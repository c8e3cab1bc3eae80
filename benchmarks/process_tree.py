"""What a process and all its descendants use, read from /proc."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

INTERVAL: Final = 0.25  # seconds
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Bytes: every process's resident memory added up, and with shared pages divided among those that share them."""

    rss: int
    pss: int


class PeakMemory:
    """Samples a process tree's memory while it is entered."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._samples = [Memory(0, 0)]
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampler.join()

    @property
    def peak(self) -> Memory:
        return Memory(max(m.rss for m in self._samples), max(m.pss for m in self._samples))

    def _sample(self) -> None:
        while not self._done.wait(INTERVAL):
            self._samples.append(memory(self._root))


def memory(root: int) -> Memory:
    rss = pss = 0
    for process in _tree(root):
        for line in _read(process / "smaps_rollup").splitlines():
            name, _, amount = line.partition(":")
            if name == "Rss":
                rss += int(amount.split()[0]) << 10
            elif name == "Pss":
                pss += int(amount.split()[0]) << 10
    return Memory(rss, pss)


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, of its ended and awaited processes too."""
    return sum(sum(map(int, _stat(process)[11:15])) for process in _tree(root)) / TICKS


def own_cpu_seconds(pid: int) -> float:
    """User and system time of one process, without its children."""
    return sum(map(int, _stat(Path(f"/proc/{pid}"))[11:13])) / TICKS


def _tree(root: int) -> Iterator[Path]:
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if stat := _stat(process):
            children.setdefault(int(stat[1]), []).append(int(process.name))
    wanted = [root]
    while wanted:
        pid = wanted.pop()
        yield Path(f"/proc/{pid}")
        wanted += children.get(pid, ())


def _stat(process: Path) -> list[str]:
    """The fields of proc(5)'s stat from the third (state) on: the second, the command, may have spaces in it."""
    return _read(process / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended meanwhile
