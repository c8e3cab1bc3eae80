"""Faults, armed by the harness in a directory where whoever stands at a boundary looks: the connector's own processes
(boundaries.py, storage.py) or a proxy between it and its servers (wire.py)."""

import builtins
import os
import threading
from pathlib import Path
from typing import Final

# In the environment of what is altered: where its faults are armed, and the defect that is planted, if any.
DIRECTORY: Final = "CRASH_FAULTS"
DEFECT: Final = "CRASH_DEFECT"
ALWAYS: Final = 1 << 30
IMPATIENT: Final = "impatient"  # strikes a process that starts: it waits for seconds where others wait for a minute


def swap(owner: object, name: str, replacement: object) -> None:
    """From outside, for as long as the process lives. What is not there under that name is no longer replaced by it."""
    assert hasattr(owner, name) or hasattr(builtins, name), f"{owner} has no {name}"
    setattr(owner, name, replacement)


class Faults:
    """A file for each armed fault: how many events it still lets pass, and how often it then strikes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self._lock = threading.Lock()

    @classmethod
    def of_this_process(cls) -> "Faults":
        return cls(Path(os.environ[DIRECTORY]))

    @property
    def environment(self) -> dict[str, str]:
        return {DIRECTORY: str(self.directory)}

    def arm(self, fault: str, *, after: int = 0, times: int = 1) -> None:
        """Let so many events pass, then strike at the next ones: all that it was to strike before have come."""
        assert not self.is_armed(fault), f"{fault} has not struck as often as it was to"
        self._fired(fault).unlink(missing_ok=True)
        self._write(fault, after, times)

    def disarm(self, fault: str) -> None:
        """What was to strike always has struck."""
        assert self.fired(fault), f"{fault} has not struck"
        self._file(fault).unlink()

    def unmet(self) -> list[str]:
        """The faults that have not struck as often as they were to; those that strike always, at least once."""
        armed = {file.stem: int(file.read_text().split()[1]) for file in self.directory.glob("*.armed")}
        return [fault for fault, times in armed.items() if times < ALWAYS // 2 or not self.fired(fault)]

    def is_armed(self, fault: str) -> bool:
        return self._file(fault).exists()

    def strikes(self, fault: str) -> bool:
        """Whether this event is struck."""
        with self._lock:
            try:
                after, times = map(int, self._file(fault).read_text().split())
            except FileNotFoundError:
                return False
            if after:
                self._write(fault, after - 1, times)
                return False
            with self._fired(fault).open("a") as fired:
                fired.write("!")
            if times > 1:
                self._write(fault, 0, times - 1)
            else:
                self._file(fault).unlink()
            return True

    def fired(self, fault: str) -> int:
        fired = self._fired(fault)
        return fired.stat().st_size if fired.exists() else 0

    def _write(self, fault: str, after: int, times: int) -> None:
        new = self.directory / f"{fault}.{os.getpid()}"
        new.write_text(f"{after} {times}")
        new.rename(self._file(fault))

    def _file(self, fault: str) -> Path:
        return self.directory / f"{fault}.armed"

    def _fired(self, fault: str) -> Path:
        return self.directory / f"{fault}.fired"
