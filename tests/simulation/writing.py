"""Writes data files without Spark: they hold their rows' names, nothing else."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

import pyarrow as pa

from connector.encoding.lines.key_digest import hash_keys
from connector.iceberg.bound_table import BoundTable
from connector.model.invalid_values import Tally, Treated, Treatment
from connector.model.state import DataFile
from connector.spark.jobs.write_job import WriteJob, Written
from protocol.request import Store
from simulation.actors import Actor
from simulation.partitions import encoded, partition_of
from simulation.store import StoreIO
from simulation.updates import Update, key_of

INVALID: Final = "invalid"  # ends the name of a row that its table does not take


class SimulatedWriting(WriteJob):
    """Stands for a transaction's Spark job."""

    def __init__(self, actor: Actor, store: StoreIO, tables: Sequence[BoundTable], prefixes: Sequence[str]) -> None:
        self._store, self._tables, self._stage = store, tables, actor.stage
        self._prefixes = prefixes
        self._names: list[UUID] = []  # drawn with the first row: a transaction without rows writes nothing
        self._rows: dict[int, list[bytes]] = {}
        self._treated: dict[int, Tally] = defaultdict(Tally)
        self._updated: dict[int, list[int | None]] = {}  # keys that were stored as existing

    def add(self, store: Store) -> None:
        self._names = self._names or [self._stage.uuid() for _ in self._tables]
        if self._tables[store.binding].binding.updates:
            self._update(store)
            return
        quarantine = self._tables[store.binding].quarantine
        for row in map(bytes, store.pieces):
            is_invalid = quarantine and row.endswith(INVALID.encode())
            index = quarantine.table_index if quarantine and is_invalid else store.binding
            self._rows.setdefault(index, []).append(row)
            self._treated[store.binding].add("value_0", Treatment.REJECTED, Treated(int(bool(is_invalid))))

    def _update(self, store: Store) -> None:
        for update in map(Update.parse, map(bytes, store.pieces)):
            if not update.is_deleted:
                self._rows.setdefault(store.binding, []).append(update.row.encode())
            if update.exists:
                self._updated.setdefault(store.binding, []).append(key_of(update.row))

    def finish(self) -> Written:
        updates = {index: [hash_keys([pa.array(keys, pa.int64())])] for index, keys in self._updated.items()}
        files = {table: tuple(self._divide(table, rows)) for table, rows in self._rows.items()}
        return Written(files, self._treated, updates)

    def _divide(self, table: int, rows: Sequence[bytes]) -> Iterator[DataFile]:
        """Write a file for each partition."""
        spec_id = self._tables[table].arrangement.spec_id
        divided: dict[tuple[bytes | None, ...], list[bytes]] = {}
        for row in rows:
            divided.setdefault(encoded(spec_id, partition_of(row.decode())), []).append(row)
        return (self._write(table, its, partition) for partition, its in divided.items())

    def _write(self, table: int, rows: Sequence[bytes], partition: tuple[bytes | None, ...]) -> DataFile:
        name = f"{self._prefixes[table]}-{self._names[table]}.parquet"
        self._names[table] = self._stage.uuid() if partition else self._names[table]
        location, content = f"{self._tables[table].location}/data/{name}", b"\n".join(rows)
        with self._store.new_output(location).create() as file:
            file.write(content)
        return DataFile(location, len(rows), len(content), (4,), (), partition)
