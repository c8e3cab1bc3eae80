"""What a benchmark has measured: a table for people, and a file for machines."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

REPOSITORY: Final = Path(__file__).parents[2]
CACHE: Final = REPOSITORY / ".cache" / "bench"
RESULTS: Final = REPOSITORY / "bench-results"
MB: Final = 1e6


def conditions() -> Mapping[str, Any]:
    """What the machine is doing before a benchmark begins."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg(),
    }


def publish(name: str, before: Mapping[str, Any], measured: "Sequence[DataclassInstance]") -> None:
    """Print the measurements, a column for each, and write them as JSON."""
    print(f"cores {before['cores']}, load before {before['load_before']}")
    columns = [dict(_figures(measurement)) for measurement in measured]
    for row in columns[0]:
        cells = [f"{v:>12,.3f}" if isinstance(v := column[row], float) else f"{v!s:>12}" for column in columns]
        print(f"{row.replace('_', ' '):<36}" + "".join(cells))
    write(name, before, measured)


def write(name: str, before: Mapping[str, Any], measured: "Sequence[DataclassInstance]") -> None:
    """Write the measurements as JSON."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    columns = [dict(_figures(measurement)) for measurement in measured]
    target.write_text(json.dumps({**before, "measurements": columns}, indent=2) + "\n")
    print(f"written to {target.relative_to(REPOSITORY)}")


def _figures(measured: "DataclassInstance") -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a measurement. One that consists of others has the names of both."""
    for name, value in asdict(measured).items():
        if isinstance(value, dict):
            yield from ((f"{name}_{part}", figure) for part, figure in value.items())
        else:
            yield name, value
