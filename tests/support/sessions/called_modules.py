"""The connector, or the parent of Spark's Python workers, with a note of each module that has a function called.

`python -m support.sessions.called_modules` is the connector. Spark starts the same module as its daemon,
with an argument.
"""

import inspect
import os
import runpy
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

from support.repository import REPOSITORY

DIRECTORY: Final = "CALLED_MODULES"  # in the environment: where modules are noted while RECORDING is there
RECORDING: Final = "recording"
_OF_DAEMON: Final = "pyspark.worker"  # Spark's argument
# Begin the names of the threads whose work no appended row waits for: maintenance, and those that list files for Loads
# and for maintenance.
_IN_BACKGROUND: Final = ("maintenance", "view")


class CalledModules:
    """The modules of `connector` and `protocol` in which a function was called while recording."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self) -> None:
        self._directory.mkdir()
        (self._directory / RECORDING).touch()

    def stop(self) -> None:
        (self._directory / RECORDING).unlink()

    @property
    def names(self) -> set[str]:
        """Paths relative to the repository, of all processes."""
        return {line for file in self._directory.glob("*.txt") for line in file.read_text().splitlines()}


def note_calls(directory: Path) -> None:
    """Note the modules that this process calls from now on, in all its threads and in those that it forks."""
    packages = tuple(f"{REPOSITORY / package}{os.sep}" for package in ("connector", "protocol"))
    recording, noted = directory / RECORDING, set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        # The body of a module or of a class is no function.
        if event != "call" or path in noted or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        in_background = threading.current_thread().name.startswith(_IN_BACKGROUND)
        if path.startswith(packages) and not in_background and recording.exists():
            noted.add(path)
            with (directory / f"{os.getpid()}.txt").open("a") as file:
                file.write(f"{Path(path).relative_to(REPOSITORY)}\n")

    threading.setprofile(note)
    sys.setprofile(note)


if __name__ == "__main__":
    note_calls(Path(os.environ[DIRECTORY]))
    runpy.run_module("connector.spark.tasks.daemon" if _OF_DAEMON in sys.argv else "connector", run_name="__main__")
