"""What a shard loads and stores in a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crash.balances import balances_at, check_loaded, is_deleted, slot_of
from crash.ledger import BALANCES, COLLECTIONS, Slot, document, entry, is_valid, key_of
from fixtures.conversation import Row
from support.sessions.runtime import Session

[UPDATED] = [place for place, collection in enumerate(COLLECTIONS) if collection.table == BALANCES]


@dataclass(frozen=True)
class Share:
    """The documents that are in a shard's key range. The log has read all documents before them."""

    documents: range
    key_range: Any
    memo_size: int

    def load(self, session: Session, shared: Sequence[Any] = ()) -> None:
        """Load what is to be updated, and check the answers."""
        session.load(*self._slots, binding=UPDATED)
        loaded = session.flush(shared)
        assert all(binding == UPDATED for binding, _ in loaded)
        check_loaded([each for _, each in loaded], self._slots, self.documents.start)

    @property
    def rows(self) -> list[Row]:
        """Binding by binding in key order."""
        loaded = balances_at(self.documents.start)
        return [
            Row(
                binding,
                document(each, self.memo_size, is_valid=binding == 0 or is_valid(each)),
                delete=binding == UPDATED and is_deleted(each),
                exists=binding == UPDATED and slot_of(each) in loaded,
            )
            for binding in range(len(COLLECTIONS))
            for each in sorted(self._entries, key=slot_of if binding == UPDATED else None)
        ]

    @property
    def _entries(self) -> list[Any]:
        begin, end = self.key_range.get("keyBegin", 0), self.key_range["keyEnd"]
        return [each for each in map(entry, self.documents) if begin <= key_of(each) <= end]

    @property
    def _slots(self) -> list[Slot]:
        slots = sorted(map(slot_of, self._entries))
        assert len(set(slots)) == len(slots), "a runtime reduces the documents of one key"
        return slots
