"""Publishing a task of many bindings, whose tables are new: its validate and its apply, after what spec asks."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.parts.servers import Lake, lake
from fixtures.collection import Collection
from fixtures.conversation import opening

BINDINGS: Final = (50, 100, 200)
WARM_UP: Final = 10  # bindings, for servers that have only just started


@dataclass(frozen=True)
class Measurement:
    """Seconds from the request to its answer, in one process."""

    catalog: str
    bindings: int
    validate: float
    apply: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    publish("publishing", before, measure(arguments.catalog, arguments.bindings))
    return 0


def measure(catalog: str, bindings: Sequence[int]) -> list[Measurement]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, lake(catalog, Path(name)) as place:
        published = [
            Measurement(catalog, count, *publish_task(Path(name), many_collections(count, f"task_{number}"), place))
            for number, count in enumerate((WARM_UP, *bindings))
        ]
    return published[1:]


def many_collections(count: int, name: str) -> list[Collection]:
    return [replace(generated_rows.COLLECTION, name=f"acmeCo/{name}-{n}", table=f"{name}_{n}") for n in range(count)]


def publish_task(directory: Path, collections: Sequence[Collection], place: Lake) -> tuple[float, float]:
    """Seconds of validate and of apply."""
    spec, validate, apply, _, _ = opening("measurements", collections, place.config)
    with Connector(directory) as connector:
        connector.send(spec)
        connector.expect("spec")
        seconds = _timed(connector, validate, "validated"), _timed(connector, apply, "applied")
        connector.end()
    return seconds


def _timed(connector: Connector, request: bytes, kind: str) -> float:
    began = time.perf_counter()
    connector.send(request)
    connector.expect(kind)
    return time.perf_counter() - began


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench publishing", description=__doc__)
    parser.add_argument("--bindings", type=int, nargs="+", default=BINDINGS)
    parser.add_argument("--catalog", choices=("local", "rest"), default="rest")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
