"""What the runtime sends to a process in one transaction: rows, and where a table has one row for each key, first the
Loads of the keys that are to change."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from connector.iceberg.bound_table import BoundTable
from connector.session.transactions import OpenTransaction
from protocol.request import Flush, Store
from simulation.actors import Actor
from simulation.lake import BrokenPromiseError
from simulation.network import Network
from simulation.task import Row, RuntimeSession
from simulation.updates import KEYS, Update, is_in_range, key_of, last_versions, loads_of
from simulation.writing import INVALID

DROPPED: Final = 8  # one of so many loaded keys is not stored


class Source:
    """Of one process, in one transaction."""

    def __init__(
        self, actor: Actor, network: Network, session: RuntimeSession, tables: Sequence[BoundTable], name: str
    ) -> None:
        self._actor, self._network, self._session, self._tables, self._name = actor, network, session, tables, name

    def send(self, transaction: OpenTransaction, bindings: int, *, loads_all: bool) -> list[Row]:
        """Returns what becomes part of the log if it commits the transaction."""
        bound = self._tables[:bindings]
        chosen = {index: self._choose_keys(table) for index, table in enumerate(bound) if table.binding.updates}
        for index, keys in chosen.items():
            if loaded := keys if loads_all else self._leave_out_new(bound[index], keys):
                transaction.load(loads_of(index, loaded))
        documents = self._answers(transaction, chosen)
        rows: list[Row] = []
        for index, table in enumerate(bound):
            if table.binding.updates is None:
                rows += self._add(transaction, index, table)
            else:
                self._check_loaded(table, chosen[index], documents[index])
                rows += self._update(transaction, index, table, chosen[index], documents[index])
        return rows

    def _choose_keys(self, table: BoundTable) -> list[int]:
        own = [key for key in KEYS if is_in_range(key, table.writer.key_range)]
        return own if self._session.is_last else [key for key in own if self._actor.stage.chance(0.6)]

    def _leave_out_new(self, table: BoundTable, keys: Sequence[int]) -> Sequence[int]:
        """The runtime sends no Load for keys above all that it has stored of this backfill."""
        if self._network.has_other_logs or self._actor.stage.chance(0.5):
            return keys
        stored = self._session.rows_of(table.binding.path)
        backfill = f"={_backfill(table)}."
        greatest = max((key_of(row) or 0 for row in stored if backfill in row), default=0)
        return [key for key in keys if key <= greatest]

    def _answers(self, transaction: OpenTransaction, chosen: Mapping[int, object]) -> dict[int, dict[int, str]]:
        """The rows that Loads have found, by binding and key."""
        documents: dict[int, dict[int, str]] = {index: {} for index in chosen}
        for line in b"".join(transaction.answer_loads(Flush())).splitlines():
            loaded = json.loads(line)["loaded"]
            found, row = documents[loaded["binding"]], loaded["doc"]
            key = key_of(row)
            if key is None or key in found:
                raise BrokenPromiseError(f"{self._actor.name}: a second answer for {row}")
            found[key] = row
        return documents

    def _check_loaded(self, table: BoundTable, keys: Sequence[int], found: Mapping[int, str]) -> None:
        """Nobody asks what a process answers that the runtime has given up."""
        if self._network.has_other_logs or self._session.is_over:
            return
        committed = last_versions(self._session.rows_of(table.binding.path, table.table_uuid))
        expected = {key: committed[key] for key in keys if key in committed}
        if expected != found:
            raise BrokenPromiseError(
                f"{self._actor.name}: Loads of {table.binding.path[1]} find {found}, but the log has {expected}"
            )

    def _add(self, transaction: OpenTransaction, index: int, table: BoundTable) -> list[Row]:
        rows: list[Row] = []
        if self._is_chosen():
            rows.append((table.binding.path, table.table_uuid, self._name))
        if table.quarantine and self._is_chosen():
            rejected = self._tables[table.quarantine.table_index]
            rows.append((rejected.binding.path, rejected.table_uuid, f"{self._name}-{INVALID}"))
        for *_, row in rows:
            transaction.store(Store(index, 0, 1, (row.encode(),)))
        return rows

    def _update(
        self,
        transaction: OpenTransaction,
        index: int,
        table: BoundTable,
        keys: Sequence[int],
        found: Mapping[int, str],
    ) -> list[Row]:
        assert table.binding.updates
        rows: list[Row] = []
        for key in keys:
            is_deleted = self._actor.stage.chance(0.35)
            if key in found and self._is_dropped(key):
                continue
            is_gone = is_deleted and table.binding.updates.hard_delete
            row = f"{key}={_backfill(table)}.{self._name}{'~' if is_gone else ''}"
            transaction.store(Update(row, key in found, is_gone).request(index))
            rows.append((table.binding.path, table.table_uuid, row))
        return rows

    def _is_dropped(self, key: int) -> bool:
        """Whether the runtime has dropped the source's documents of a key that it has loaded, because a capture reads
        its source again. Not drawn: other schedules stay what they are."""
        return not self._session.is_last and zlib.crc32(f"{self._name} {key}".encode()) % DROPPED == 0

    def _is_chosen(self) -> bool:
        return self._session.is_last or self._actor.stage.chance(0.8)


def _backfill(table: BoundTable) -> str:
    return table.writer.state_key.rpartition(".")[2]
