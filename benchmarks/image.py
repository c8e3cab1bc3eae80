"""The container image: its size, how soon a container of it answers a spec request and opens a session, and how fast it
is beside a bare process."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import stores
from benchmarks.parts import generated_rows
from benchmarks.parts.connector import BARE, Connector
from benchmarks.parts.report import CACHE, MB, REPOSITORY, conditions, publish
from fixtures.conversation import line, opening

RUNS: Final = 7
TURNS: Final = 3
ENGINE: Final = (REPOSITORY / "scripts" / "engine", "docker")
RUN: Final = (*ENGINE, "run", "--rm", "--interactive", "--network", "none")


@dataclass(frozen=True)
class Measurement:
    """Medians: from `docker run` to the whole answer of spec, and to the opened of a session on the Local catalog; and
    of transactions as `scripts/bench stores` has them, in the image and bare by turns."""

    megabytes: float
    spec_seconds: float
    opened_seconds: float
    runs: int
    rows: int
    bare_rows_per_second: float
    image_rows_per_second: float
    ratio: float
    transactions: int


def main() -> int:
    arguments = _arguments()
    path = generated_rows.store_lines(CACHE, arguments.rows, packed=False)
    image = _printed(REPOSITORY / "scripts" / "image")
    before = conditions()
    size = int(_printed(*ENGINE, "image", "inspect", "--format", "{{.Size}}", image))
    spec = median(_spec(image) for _ in range(RUNS))
    opened = median(_opened(image) for _ in range(RUNS))
    bare, contained = _rates(image, path, arguments.rows)
    transactions = (arguments.rows, bare, contained, contained / bare, TURNS)
    publish("image", before, [Measurement(size / MB, spec, opened, RUNS, *transactions)])
    return 0


def _rates(image: str, path: Path, count: int) -> tuple[float, float]:
    """Rows per second, bare and in the image: in turns, so that both have the machine as it is."""
    measured = [tuple(count / _transaction(path, in_image) for in_image in ((), (image,))) for _ in range(TURNS)]
    bare, contained = zip(*measured, strict=True)
    return median(bare), median(contained)


def _transaction(path: Path, in_image: Sequence[str]) -> float:
    """Seconds from the first Store byte to startedCommit, Spark's start included."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as directory:
        Path(directory).chmod(0o777)
        place = ("--volume", f"{directory}:{directory}", "--workdir", directory)
        command: Sequence[str | Path] = [*RUN, *place, *in_image] if in_image else BARE
        with Connector(Path(directory), command) as connector:
            connector.send(*opening("measurements", [generated_rows.COLLECTION]))
            connector.expect("spec", "validated", "applied", "opened", "acknowledged")
            connector.send(line("flush", {}))
            connector.expect("flushed")
            began = time.perf_counter()
            stores.feed(path, connector.input)
            connector.send(generated_rows.START_COMMIT)
            connector.expect("startedCommit")
            seconds = time.perf_counter() - began
            connector.end()
    return seconds


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
            container.stdin.writelines(opening("measurements", [generated_rows.COLLECTION]))
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench image", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each transaction")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
