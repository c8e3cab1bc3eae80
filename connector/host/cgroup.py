"""The limits of this process's control group (cgroup), which is usually the container's."""

import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_UNLIMITED: Final = 1 << 60  # bytes: version 1 shows a larger number if there is no limit


class Cgroup:
    """A control group of version 1 or 2. The limits of its parents hold for it, too."""

    def __init__(self, membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._membership = membership
        self._root = root

    @property
    def memory(self) -> int | None:
        """The most memory in bytes, or None without a limit."""
        values = [*self._values("", "memory.max"), *self._values("memory", "memory.limit_in_bytes")]
        limits = [int(value) for value in values if value.isdigit()]
        return min((limit for limit in limits if limit < _UNLIMITED), default=None)

    @property
    def cores(self) -> float | None:
        """How many processors it may keep busy, or None without a limit. May be a fraction."""
        shares = [value.split() for value in self._values("", "cpu.max")]
        periods = self._values("cpu", "cpu.cfs_period_us")
        # One of the two files may not be readable.
        shares += [[*share] for share in zip(self._values("cpu", "cpu.cfs_quota_us"), periods, strict=False)]
        return min((int(quota) / int(period) for quota, period in shares if quota.isdigit()), default=None)

    @property
    def killed_for_memory(self) -> int:
        """How many of its processes the kernel has killed because memory ran out (OOM)."""
        # A parent's number has those of other groups, too. It is used only where the group itself has none.
        events = chain(self._values("", "memory.events"), self._values("memory", "memory.oom_control"))
        killed = _KILLED.search(next(events, ""))
        return int(killed[1]) if killed else 0

    @property
    def files_in_memory(self) -> int:
        """How many bytes the files of a tmpfs have that its processes wrote."""
        statistics = chain(self._values("", "memory.stat"), self._values("memory", "memory.stat"))
        size = _FILES_IN_MEMORY.search(next(statistics, ""))
        return int(size[1]) if size else 0

    def _values(self, controller: str, name: str) -> Iterator[str]:
        """Yield a file's contents in the group, then in each of its parents. In version 2 the controller is ""."""
        for controllers, path in self._groups():
            if controller in controllers.split(","):
                top = self._root / controller
                group = top / path
                for directory in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
                    yield from (text.strip() for text in self._read(directory / name))

    def _groups(self) -> Iterator[tuple[str, str]]:
        for text in self._read(self._membership):
            for line in filter(None, text.split("\n")):
                _, controllers, path = line.split(":", 2)
                yield controllers, path.lstrip("/")

    def _read(self, file: Path) -> Iterator[str]:
        """Yield the file's contents, if it exists and may be read."""
        try:
            if file.is_file():
                yield os.fsdecode(file.read_bytes())  # the names of groups may be any bytes
        except PermissionError:
            _warn(self._membership, self._root)


@cache
def _warn(membership: Path, root: Path) -> None:
    """Log it once: a session reads the limits again and again."""
    log.warning("the limits of the control group are not known, because %s or %s may not be read", membership, root)


_KILLED: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_FILES_IN_MEMORY: Final = re.compile(r"^shmem (\d+)$", re.MULTILINE)
