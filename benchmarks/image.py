"""The container image: its size, and how soon a container of it answers a spec request and opens a session."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import rows
from benchmarks.report import REPOSITORY, conditions, publish
from fixtures.conversation import opening

RUNS: Final = 7
ENGINE: Final = (REPOSITORY / "scripts" / "engine", "docker")
RUN: Final = (*ENGINE, "run", "--rm", "--interactive", "--network", "none")
MB: Final = 1e6


@dataclass(frozen=True)
class Measurement:
    """Medians: from `docker run` to the whole answer of spec, and to the opened of a session on the Local catalog."""

    megabytes: float
    spec_seconds: float
    opened_seconds: float
    runs: int


def main() -> int:
    image = _printed(REPOSITORY / "scripts" / "image")
    before = conditions()
    size = int(_printed(*ENGINE, "image", "inspect", "--format", "{{.Size}}", image))
    spec = median(_spec(image) for _ in range(RUNS))
    opened = median(_opened(image) for _ in range(RUNS))
    publish("image", before, [Measurement(size / MB, spec, opened, RUNS)])
    return 0


def _spec(image: str) -> float:
    began = time.perf_counter()
    subprocess.run([*RUN, image, "spec"], check=True, capture_output=True)
    return time.perf_counter() - began


def _opened(image: str) -> float:
    """The session ends with its input, right after; its tables are in a directory that is removed."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        began = time.perf_counter()
        container = subprocess.Popen(
            [*RUN, "--volume", f"{directory}:/lake", "--workdir", "/lake", image],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with container:
            assert container.stdin
            assert container.stdout
            container.stdin.writelines(opening("measurements", [rows.COLLECTION]))
            container.stdin.flush()
            for answer in container.stdout:
                if answer.startswith(b'{"opened"'):
                    seconds = time.perf_counter() - began
                    break
            else:
                sys.exit("the container has not opened a session: nothing is reported")
            container.stdin.close()
            container.stdout.read()
    return seconds


def _printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
