"""Large transactions through the whole connector process, one after the other: from the first Store byte to
startedCommit."""

import argparse
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from pyiceberg.catalog import Catalog
from pyiceberg.table import TableProperties

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import Memory, PeakMemory, cpu_seconds
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.parts.servers import Lake, lake
from benchmarks.parts.targets import Baseline, Measured, Unit
from fixtures.collection import NAMESPACE, Collection
from fixtures.conversation import line, opening

FORMS: Final = ("plain", "packed")
PIPE: Final = 1 << 20
# A feeder that is not much faster than what it feeds would be what is measured.
FEEDER_MARGIN: Final = 3.0
TARGET_SIZE: Final = (
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
)


@dataclass(frozen=True)
class Measurement:
    """One transaction; rates are of Store lines, from the first byte fed to startedCommit read. Spark starts during the
    first transaction of a session and is up for the later ones. Peaks are the session's until then."""

    catalog: str
    form: str
    transaction: int
    rows: int
    megabytes: float
    seconds: float
    megabytes_per_second: float
    rows_per_second: float
    baseline_rows_per_second: float
    ratio: float
    feeder_megabytes_per_second: float
    commit_seconds: float
    peak_rss_megabytes: float
    peak_pss_megabytes: float
    stores_cpu_seconds: float
    servers_cpu_seconds: float
    files: int
    files_below_half_of_the_target: int


@dataclass(frozen=True)
class Input:
    """A file of Store lines that is fed a number of times for one transaction; the baseline; and how many of its rows
    the feeder feeds in a second."""

    form: str
    path: Path
    rows: int
    times: int
    baseline: Baseline
    feeder: float

    @property
    def megabytes(self) -> float:
        return self.path.stat().st_size * self.times / MB

    def repeated(self, times: int) -> Self:
        return replace(self, rows=self.rows * times, times=self.times * times)


@dataclass(frozen=True)
class Transaction:
    """From the first Store byte to startedCommit, and from there to acknowledged."""

    seconds: float
    commit_seconds: float
    cpu_seconds: float
    servers_cpu_seconds: float
    peak: Memory


def main() -> int:
    arguments = _arguments()
    forms = [form for form in FORMS if arguments.form in (None, form)]
    before = conditions()
    measured = []
    for given in inputs(forms, arguments.rows, arguments.times):
        measured += measure(given, arguments.catalog, arguments.transactions, arguments.master)
    publish(f"stores-{arguments.catalog}", before, measured)
    return 0


def inputs(forms: Sequence[str], count: int, times: int = 1, step: int = generated_rows.STEP) -> list[Input]:
    """The packed form is compared with the conversion of its plain twin, row for row."""
    paths = {
        form: generated_rows.store_lines(CACHE, count, packed=form == "packed", step=step) for form in {"plain", *forms}
    }
    baseline = measure_baseline(paths["plain"], count)
    return [_input(form, paths[form], count, times, baseline) for form in forms]


def _input(form: str, path: Path, count: int, times: int, baseline: Baseline) -> Input:
    _feed_a_reader(path)  # the disk is not what is measured: the file is in the page cache afterwards
    feeder = count / _feed_a_reader(path)
    needed = FEEDER_MARGIN * count / baseline.seconds
    if feeder < needed:
        sys.exit(f"the feeder reaches {feeder:,.0f} rows/s, and must reach {needed:,.0f}: nothing is reported")
    return Input(form, path, count * times, times, baseline, feeder)


def measure(
    given: Input, catalog: str, transactions: int, master: str = "", collection: Collection = generated_rows.COLLECTION
) -> list[Measurement]:
    """One session's transactions, each of the whole input. `collection` has the settings of the binding."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, lake(catalog, Path(name)) as place:
        taken = _run(given, Path(name), _with_master(place, master), transactions, collection)
        landed = _landed(place.catalog(), transactions)
    if any(count != given.rows for count, _ in landed):
        sys.exit(f"{[count for count, _ in landed]} rows landed of {given.rows} each: nothing is reported")
    return [
        _measurement(catalog, given, number, transaction, files)
        for number, (transaction, (_, files)) in enumerate(zip(taken, landed, strict=True), start=1)
    ]


def _with_master(place: Lake, master: str) -> Lake:
    advanced = {"advanced": {"spark": {"spark.master": master}}} if master else {}
    return replace(place, config={**place.config, **advanced})


def _measurement(catalog: str, given: Input, number: int, taken: Transaction, files: Sequence[bool]) -> Measurement:
    return Measurement(
        catalog=catalog,
        form=given.form,
        transaction=number,
        rows=given.rows,
        megabytes=given.megabytes,
        seconds=taken.seconds,
        megabytes_per_second=given.megabytes / taken.seconds,
        rows_per_second=given.rows / taken.seconds,
        baseline_rows_per_second=given.baseline.rows / given.baseline.seconds,
        ratio=Measured(given.rows / taken.seconds, given.baseline).express(Unit.SPEED),
        feeder_megabytes_per_second=given.feeder * given.megabytes / given.rows,
        commit_seconds=taken.commit_seconds,
        peak_rss_megabytes=taken.peak.rss / MB,
        peak_pss_megabytes=taken.peak.pss / MB,
        stores_cpu_seconds=taken.cpu_seconds,
        servers_cpu_seconds=taken.servers_cpu_seconds,
        files=len(files),
        files_below_half_of_the_target=sum(files),
    )


def _run(given: Input, directory: Path, place: Lake, transactions: int, collection: Collection) -> list[Transaction]:
    with Connector(directory) as connector, PeakMemory(connector.pid) as peak:
        connector.send(*opening("measurements", [collection], place.config))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        taken = [_transaction(connector, place, peak, given) for _ in range(transactions)]
        connector.end()
    return taken


def _transaction(connector: Connector, place: Lake, peak: PeakMemory, given: Input) -> Transaction:
    connector.send(line("flush", {}))
    connector.expect("flushed")
    cpu_before, servers_before, began = cpu_seconds(connector.pid), _of_servers(place), time.perf_counter()
    for _ in range(given.times):
        feed(given.path, connector.input)
    connector.send(generated_rows.START_COMMIT)
    connector.expect("startedCommit")
    started, cpu, servers = time.perf_counter(), cpu_seconds(connector.pid), _of_servers(place)
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")
    return Transaction(
        started - began, time.perf_counter() - started, cpu - cpu_before, servers - servers_before, peak.peak
    )


def _of_servers(place: Lake) -> float:
    return sum(map(cpu_seconds, place.servers.values()))


def feed(path: Path, pipe: int) -> None:
    """The whole file, page by page, without copying it through this process."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
    with path.open("rb") as file:
        while os.splice(file.fileno(), pipe, PIPE):
            pass


def _feed_a_reader(path: Path) -> float:
    """Seconds to feed the file to a process that only reads."""
    reader = subprocess.Popen(
        [sys.executable, "-c", "import os\nwhile os.read(0, 1 << 20): pass"], stdin=subprocess.PIPE
    )
    assert reader.stdin is not None
    began = time.perf_counter()
    with reader.stdin as stdin:
        feed(path, stdin.fileno())
    reader.wait()
    return time.perf_counter() - began


def measure_baseline(plain: Path, count: int) -> Baseline:
    """Measure R with a file of this many plain rows."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="baseline-") as directory:
        command = [
            sys.executable,
            "-m",
            "benchmarks.parts.conversion",
            str(plain),
            str(Path(directory) / "stores.parquet"),
        ]
        seconds, cpu_seconds = map(float, subprocess.run(command, check=True, capture_output=True).stdout.split())
    return Baseline(count, plain.stat().st_size / MB, seconds, cpu_seconds)


def _landed(catalog: Catalog, transactions: int) -> list[tuple[int, list[bool]]]:
    """Of each of the last transactions, which are a snapshot each: the rows, and for each data file whether it is below
    half of the size that the table asks for."""
    table = catalog.load_table((NAMESPACE, generated_rows.COLLECTION.table))
    half = int(table.properties.get(*TARGET_SIZE)) / 2
    landed = []
    for snapshot in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)[-transactions:]:
        added = [
            entry.data_file
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
        ]
        landed.append((sum(file.record_count for file in added), [file.file_size_in_bytes < half for file in added]))
    return landed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench stores", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the input")
    parser.add_argument("--times", type=int, default=1, help="that a transaction has the input's rows")
    parser.add_argument("--transactions", type=int, default=2, help="of the session; Spark starts during the first one")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local", help="rest: with an S3 server")
    parser.add_argument("--master", default="", help="a Spark cluster's, whose processor time is not measured")
    form = parser.add_mutually_exclusive_group()
    for name in FORMS:
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"the {name} form only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
