"""One large transaction through the whole connector process: from the first Store byte to startedCommit."""

import argparse
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog

from benchmarks import rows
from benchmarks.connector import Connector
from benchmarks.process_tree import Memory, PeakMemory, cpu_seconds
from benchmarks.report import REPOSITORY, conditions, publish
from fixtures.collection import Json
from fixtures.conversation import CONFIG, line, opening

CACHE: Final = REPOSITORY / ".cache" / "bench"
PIPE: Final = 1 << 20
# A feeder that is not much faster than what it feeds would be what is measured.
FEEDER_MARGIN: Final = 3.0
MB: Final = 1e6


@dataclass(frozen=True)
class Measurement:
    """One form's run; rates are of Store lines, from the first byte fed to startedCommit read."""

    form: str
    rows: int
    megabytes: float
    megabytes_per_second: float
    rows_per_second: float
    yardstick_rows_per_second: float
    ratio: float
    feeder_megabytes_per_second: float
    commit_seconds: float
    peak_rss_megabytes: float
    peak_pss_megabytes: float
    stores_cpu_seconds: float
    whole_cpu_seconds: float
    files: int


@dataclass(frozen=True)
class Run:
    """One connector process: from the first Store byte to startedCommit, and from there to acknowledged."""

    seconds: float
    commit_seconds: float
    stores_cpu_seconds: float
    whole_cpu_seconds: float
    peak: Memory


def main() -> int:
    arguments = _arguments()
    forms = [form for form in ("plain", "packed") if arguments.form in (None, form)]
    # The packed form is compared with the conversion of its plain twin, row for row.
    plain = rows.store_lines(CACHE, arguments.rows, packed=False)
    before = conditions()
    yardstick = arguments.rows / _convert(plain)
    measured = []
    for form in forms:
        path = rows.store_lines(CACHE, arguments.rows, packed=form == "packed")
        measured.append(_measure(form, path, arguments.rows, yardstick, _config(arguments.master)))
    publish("stores", before, measured)
    return 0


def _config(master: str) -> Json:
    return {**CONFIG, "advanced": {"spark": {"spark.master": master}}} if master else CONFIG


def _measure(form: str, path: Path, count: int, yardstick: float, config: Json) -> Measurement:
    size = path.stat().st_size / MB
    feeder = size / _feed_a_reader(path)
    needed = FEEDER_MARGIN * yardstick * size / count
    if feeder < needed:
        sys.exit(f"the feeder reaches {feeder:.0f} MB/s, and must reach {needed:.0f}: nothing is reported")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as directory:
        run = _run(path, Path(directory), config)
        landed, files = _landed(Path(directory) / "warehouse")
    if landed != count:
        sys.exit(f"{landed} rows landed of {count}: nothing is reported")
    return Measurement(
        form=form,
        rows=count,
        megabytes=size,
        megabytes_per_second=size / run.seconds,
        rows_per_second=count / run.seconds,
        yardstick_rows_per_second=yardstick,
        ratio=count / run.seconds / yardstick,
        feeder_megabytes_per_second=feeder,
        commit_seconds=run.commit_seconds,
        peak_rss_megabytes=run.peak.rss / MB,
        peak_pss_megabytes=run.peak.pss / MB,
        stores_cpu_seconds=run.stores_cpu_seconds,
        whole_cpu_seconds=run.whole_cpu_seconds,
        files=files,
    )


def _run(path: Path, directory: Path, config: Json) -> Run:
    with Connector(directory) as connector, PeakMemory(connector.pid) as peak:
        connector.send(*opening("measurements", [rows.COLLECTION], config))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        connector.send(line("flush", {}))
        connector.expect("flushed")
        cpu_before, began = cpu_seconds(connector.pid), time.perf_counter()
        feed(path, connector.input)
        connector.send(rows.START_COMMIT)
        connector.expect("startedCommit")
        started, cpu_after = time.perf_counter(), cpu_seconds(connector.pid)
        connector.send(line("acknowledge", {}))
        connector.expect("acknowledged")
        acknowledged = time.perf_counter()
        whole_cpu = cpu_seconds(connector.pid)
        connector.end()
    return Run(started - began, acknowledged - started, cpu_after - cpu_before, whole_cpu, peak.peak)


def feed(path: Path, pipe: int) -> None:
    """The whole file, page by page, without copying it through this process."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
    with path.open("rb") as file:
        while os.splice(file.fileno(), pipe, PIPE):
            pass


def _feed_a_reader(path: Path) -> float:
    """Seconds to feed the file to a process that only reads; the file is in the page cache afterwards."""
    reader = subprocess.Popen(
        [sys.executable, "-c", "import os\nwhile os.read(0, 1 << 20): pass"], stdin=subprocess.PIPE
    )
    assert reader.stdin is not None
    began = time.perf_counter()
    with reader.stdin as stdin:
        feed(path, stdin.fileno())
    reader.wait()
    return time.perf_counter() - began


def _convert(plain: Path) -> float:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="yardstick-") as directory:
        command = [sys.executable, "-m", "benchmarks.conversion", str(plain), str(Path(directory) / "stores.parquet")]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)


def _landed(warehouse: Path) -> tuple[int, int]:
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    snapshot = catalog.load_table("shop.measurements").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-records"] or 0), int(snapshot.summary["total-data-files"] or 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench stores", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--master", default="", help="a Spark cluster's, whose processor time is not measured")
    form = parser.add_mutually_exclusive_group()
    for name in ("plain", "packed"):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"the {name} form only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
