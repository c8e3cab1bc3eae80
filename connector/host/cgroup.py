"""The limits of this process's control group, which is usually a container's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_UNLIMITED: Final = 1 << 60  # bytes: where there is no limit, version 1 gives a number that no machine has


class Cgroup:
    """Of version 1 or 2. Its parents' limits hold for it too; in a container it is its own root."""

    def __init__(self, membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._membership = membership
        self._root = root

    @property
    def memory(self) -> int | None:
        """Bytes, where they are limited."""
        values = [*self._values("", "memory.max"), *self._values("memory", "memory.limit_in_bytes")]
        limits = [int(value) for value in values if value.isdigit()]
        return min((limit for limit in limits if limit < _UNLIMITED), default=None)

    @property
    def cores(self) -> float | None:
        """How many processors' worth of time it may take, where that is limited."""
        shares = [value.split() for value in self._values("", "cpu.max")]
        periods = self._values("cpu", "cpu.cfs_period_us")
        shares += [[*share] for share in zip(self._values("cpu", "cpu.cfs_quota_us"), periods, strict=True)]
        return min((int(quota) / int(period) for quota, period in shares if quota.isdigit()), default=None)

    @property
    def killed_for_memory(self) -> int:
        """How many of its processes the kernel has killed so far for lack of memory."""
        values = [*self._values("", "memory.events"), *self._values("memory", "memory.oom_control")]
        return max((int(found[1]) for value in values if (found := _KILLED.search(value))), default=0)

    def _values(self, controller: str, name: str) -> Iterator[str]:
        """A file's contents in the group and in its parents up to the root; version 2 has no controllers' names
        ("")."""
        for controllers, path in self._groups():
            if controller in controllers.split(","):
                top = self._root / controller
                group = top / path
                for directory in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
                    if (file := directory / name).is_file():
                        yield file.read_text().strip()

    def _groups(self) -> Iterator[tuple[str, str]]:
        if self._membership.is_file():
            for line in self._membership.read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                yield controllers, path.lstrip("/")


_KILLED: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
