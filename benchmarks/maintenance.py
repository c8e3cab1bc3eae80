"""A steady load of small transactions, with compaction and without: two equal sessions in alternating rounds. The
session whose round it is not is stopped, so its compaction takes no processor from the other."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import cpu_seconds, resume, stop
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.parts.servers import lake
from benchmarks.publishing import publish_task
from benchmarks.updates import ADDED, KEPT, SEED, keys_of
from fixtures.collection import Collection
from fixtures.conversation import Row, line, load, opening, store

MANY: Final = 1 << 30  # rows: more than are sent
ENABLED: Final = "flow.compaction.enabled"
# Small files of some transactions reach the target, so compaction is due again and again.
PROPERTIES: Final = {"write.target-file-size-bytes": str(1 << 20), "flow.compaction.min-input-files": "3"}


@dataclass(frozen=True)
class Steady:
    """The load. One table gets new rows, the other one random changes of rows that it has."""

    added: int = 300  # rows of each transaction
    changed: int = 100
    kept: int = 20_000  # rows that the changed table has
    interval: float = 0.5  # seconds from the begin of a transaction to that of the next one


@dataclass(frozen=True)
class Transaction:
    """Seconds: from the first Load to the last Loaded, and from startCommit to acknowledged."""

    load: float
    acknowledge: float


@dataclass(frozen=True)
class Measurement:
    """Times are milliseconds. Processor time is that of all processes of the session, in its rounds."""

    compaction: str
    transactions: int
    acknowledge_median: float
    acknowledge_p95: float
    load_median: float
    load_p95: float
    cpu_of_a_transaction: float
    compactions: int
    compacted_files: int
    compacted_megabytes: float
    removed_delete_files: int
    acknowledge_median_ratio: float = 1.0
    acknowledge_p95_ratio: float = 1.0
    load_median_ratio: float = 1.0
    load_p95_ratio: float = 1.0
    cpu_ratio: float = 1.0


class Session:
    """A connector with both tables, and the runtime's part of the conversation."""

    def __init__(self, connector: Connector, collections: Sequence[Collection], steady: Steady, log: Path) -> None:
        self.transactions: list[Transaction] = []
        self.cpu = 0.0
        self._stopped: frozenset[int] = frozenset()
        self._connector, self._collections, self._steady, self._log = connector, collections, steady, log
        self._random = Random(SEED)
        self._keys = [*keys_of(steady.kept)]
        self._new = generated_rows.documents(MANY)

    def fill(self) -> None:
        """Send the rows that are changed later."""
        self._connector.send(line("flush", {}))
        self._connector.expect("flushed")
        self._commit([self._store(1, document) for document in generated_rows.documents(self._steady.kept)])

    def run_round(self, count: int) -> Sequence[Transaction]:
        """Send so many transactions, and stop the session."""
        self.resume()
        cpu, began = cpu_seconds(self._connector.pid), time.perf_counter()
        done = []
        for number in range(count):
            time.sleep(max(0.0, began + number * self._steady.interval - time.perf_counter()))
            done.append(self._transact())
        self.cpu += cpu_seconds(self._connector.pid) - cpu
        self.stop()
        return done

    def stop(self) -> None:
        """Let no process of the session run."""
        self._stopped = stop(self._connector.pid)

    def resume(self) -> None:
        """Let the processes run again."""
        resume(self._stopped)
        self._stopped = frozenset()

    def compacted(self) -> Sequence[dict[str, Any]]:
        """Return the events of compactions."""
        records = map(json.loads, self._log.read_text().splitlines())
        return [record for record in records if record.get("event") == "compacted"]

    def _transact(self) -> Transaction:
        loads = [load(1, key, packed=False) for key in self._random.sample(self._keys, self._steady.changed)]
        added = [self._store(0, document) for document in islice(self._new, self._steady.added)]
        began = time.perf_counter()
        self._connector.send(*loads, line("flush", {}))
        found = [*self._connector.receive_until("flushed")]
        loaded = time.perf_counter() - began
        assert len(found) == len(loads), "each key is there"
        documents = sorted((json.loads(answer)["loaded"]["doc"] for answer in found), key=itemgetter("id"))
        changes = [self._store(1, {**each, "price": each["price"] + 1}, exists=True) for each in documents]
        return Transaction(loaded, self._commit([*added, *changes]))

    def _commit(self, stores: Sequence[bytes]) -> float:
        self._connector.send(*stores)
        began = time.perf_counter()
        self._connector.send(generated_rows.START_COMMIT)
        self._connector.expect("startedCommit")
        self._connector.send(line("acknowledge", {}))
        self._connector.expect("acknowledged")
        return time.perf_counter() - began

    def _store(self, binding: int, document: Any, *, exists: bool = False) -> bytes:
        return store(self._collections[binding], Row(binding, document, exists=exists), packed=False)


def main() -> int:
    arguments = _arguments()
    steady = Steady(arguments.added, arguments.changed, interval=arguments.interval)
    before = conditions()
    publish("maintenance", before, measure(steady, arguments.rounds, arguments.count))
    return 0


def measure(steady: Steady, rounds: int, count: int) -> Sequence[Measurement]:
    """So many rounds of each session after one that warms them up, each with so many transactions."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, ExitStack() as sessions:
        pair = {
            enabled: sessions.enter_context(_open(Path(name, enabled), steady, enabled))
            for enabled in ("false", "true")
        }
        order = list(pair.values())
        for session in order:
            session.run_round(count)
            session.cpu = 0.0
        skipped = {enabled: len(session.compacted()) for enabled, session in pair.items()}
        for _ in range(rounds):
            for session in order:
                session.transactions += session.run_round(count)
            order.reverse()
        off, on = (_measurement(pair[enabled], enabled, skipped[enabled]) for enabled in ("false", "true"))
    return [off, _compare(on, off)]


@contextmanager
def _open(directory: Path, steady: Steady, enabled: str) -> Iterator[Session]:
    """Publish the task to a new lake, open a session, and fill its table. It is stopped between its rounds."""
    directory.mkdir()
    settings = {"additional_table_properties": {**PROPERTIES, ENABLED: enabled}}
    collections = [replace(each, settings={**each.settings, **settings}) for each in (ADDED, KEPT)]
    with lake("local", directory) as place:
        publish_task(directory, collections, place)
        *_, open_, acknowledge = opening("measurements", collections, place.config)
    with Connector(directory, log=directory / "log.jsonl") as connector:
        connector.send(open_, acknowledge)
        connector.expect("opened", "acknowledged")
        session = Session(connector, collections, steady, directory / "log.jsonl")
        session.fill()
        session.stop()
        try:
            yield session
        finally:  # a stopped process does not notice that its parent has ended
            session.resume()
        connector.end()


def _measurement(session: Session, enabled: str, skipped: int) -> Measurement:
    compacted = session.compacted()[skipped:]
    acknowledge = [1000 * each.acknowledge for each in session.transactions]
    loads = [1000 * each.load for each in session.transactions]
    return Measurement(
        compaction="on" if enabled == "true" else "off",
        transactions=len(session.transactions),
        acknowledge_median=median(acknowledge),
        acknowledge_p95=_p95(acknowledge),
        load_median=median(loads),
        load_p95=_p95(loads),
        cpu_of_a_transaction=1000 * session.cpu / len(session.transactions),
        compactions=len(compacted),
        compacted_files=sum(each["files"] for each in compacted),
        compacted_megabytes=sum(each["bytes"] for each in compacted) / 1e6,
        removed_delete_files=sum(each["deleteFiles"] for each in compacted),
    )


def _compare(on: Measurement, off: Measurement) -> Measurement:
    return replace(
        on,
        acknowledge_median_ratio=on.acknowledge_median / off.acknowledge_median,
        acknowledge_p95_ratio=on.acknowledge_p95 / off.acknowledge_p95,
        load_median_ratio=on.load_median / off.load_median,
        load_p95_ratio=on.load_p95 / off.load_p95,
        cpu_ratio=on.cpu_of_a_transaction / off.cpu_of_a_transaction,
    )


def _p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench maintenance", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="of each session")
    parser.add_argument("--count", type=int, default=40, help="transactions of each round")
    parser.add_argument("--added", type=int, default=Steady.added, help="rows of each transaction")
    parser.add_argument("--changed", type=int, default=Steady.changed, help="rows of each transaction")
    parser.add_argument("--interval", type=float, default=Steady.interval, help="seconds between transactions")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
