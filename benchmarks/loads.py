"""Small transactions of standard updates to many tables: in each, all tables are asked for some documents, which are
changed."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import cpu_seconds
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.parts.servers import lake
from benchmarks.publishing import many_collections, publish_task
from benchmarks.updates import KEPT
from fixtures.collection import Collection
from fixtures.conversation import Row, line, load, opening, store


@dataclass(frozen=True)
class Measurement:
    """Medians in seconds. CPU seconds are those of the connector's processes."""

    catalog: str
    tables: int
    rows_of_each: int
    changes_of_each: int
    transactions: int
    first_load_to_flushed: float
    first_load_to_flushed_cpu: float
    first_store_to_acknowledged: float
    first_store_to_acknowledged_cpu: float


@dataclass(frozen=True)
class Transaction:
    """Seconds, and processor seconds, of its two parts."""

    loads: float
    loads_cpu: float
    stores: float
    stores_cpu: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    measured = measure(arguments.catalog, arguments.tables, arguments.rows, arguments.changes, arguments.count)
    publish(f"loads-{arguments.catalog}-{arguments.tables}", before, [measured])
    return 0


def measure(catalog: str, tables: int, count: int, changes: int, transactions: int) -> Measurement:
    collections = [replace(each, settings=KEPT.settings) for each in many_collections(tables, "measurements")]
    keys = [generated_rows.COLLECTION.key_of(document) for document in generated_rows.documents(changes)]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, lake(catalog, Path(name)) as place:
        publish_task(Path(name), collections, place)
        *_, open_, acknowledge = opening("measurements", collections, place.config)
        with Connector(Path(name)) as connector:
            connector.send(open_, acknowledge)
            connector.expect("opened", "acknowledged")
            connector.send(line("flush", {}))
            connector.expect("flushed")
            for index, collection in enumerate(collections):
                new = (store(collection, Row(index, each), packed=False) for each in generated_rows.documents(count))
                connector.send(*new)
            _commit(connector)
            _, *measured = [_change(connector, collections, keys) for _ in range(transactions + 1)]
            connector.end()
    return Measurement(
        catalog=catalog,
        tables=tables,
        rows_of_each=count,
        changes_of_each=changes,
        transactions=transactions,
        first_load_to_flushed=median(each.loads for each in measured),
        first_load_to_flushed_cpu=median(each.loads_cpu for each in measured),
        first_store_to_acknowledged=median(each.stores for each in measured),
        first_store_to_acknowledged_cpu=median(each.stores_cpu for each in measured),
    )


def _change(connector: Connector, collections: Sequence[Collection], keys: Sequence[list[object]]) -> Transaction:
    idle, began = cpu_seconds(connector.pid), time.perf_counter()
    for index in range(len(collections)):
        connector.send(*(load(index, key, packed=False) for key in keys))
    connector.send(line("flush", {}))
    answers = [json.loads(answer)["loaded"] for answer in connector.receive_until("flushed")]
    flushed, searched = time.perf_counter(), cpu_seconds(connector.pid)
    assert len(answers) == len(collections) * len(keys), "each key is there"
    changed = [
        Row(answer.get("binding", 0), {**answer["doc"], "price": answer["doc"]["price"] + 1}, exists=True)
        for answer in answers
    ]
    stores = [store(collections[row.binding], row, packed=False) for row in changed]
    reduced = time.perf_counter()
    connector.send(*stores)
    _commit(connector)
    acknowledged = time.perf_counter()
    return Transaction(flushed - began, searched - idle, acknowledged - reduced, cpu_seconds(connector.pid) - searched)


def _commit(connector: Connector) -> None:
    connector.send(generated_rows.START_COMMIT)
    connector.expect("startedCommit")
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench loads", description=__doc__)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--rows", type=int, default=100, help="of each table")
    parser.add_argument("--changes", type=int, default=10, help="of each table, in each transaction")
    parser.add_argument("--count", type=int, default=10, help="transactions after the first")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local", help="rest: with an S3 server")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
