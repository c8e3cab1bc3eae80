"""Sources of random updates and deletions, with the models of what their tables have to hold."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from fixtures.collection import Collection
from fixtures.conversation import Row
from fixtures.packed import pack
from support.sessions.runtime import Session

Json: TypeAlias = Any
MakeDocument: TypeAlias = Callable[[Json, int], Json]  # of a key (a JSON array) and a version


@dataclass
class UpdatingSource:
    """The documents of one binding, by key. It plays the runtime: it loads before it stores."""

    collection: Collection
    make_document: MakeDocument
    random: Random
    binding: int = 0
    hard_delete: bool = False
    packed: bool = False
    is_rejected: Callable[[Json], bool] = lambda _: False  # of a document: its row goes to another table
    documents: dict[str, Json] = field(default_factory=dict)  # by key: what the table must have
    versions: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 40)))

    def transact(self, session: Session, keys: Sequence[Json], deleted: float = 0.0) -> None:
        """One transaction that stores or deletes each of these keys once, staged and acknowledged."""
        hold_transactions(session, [[(self, keys)]], deleted)

    def stage(self, session: Session, keys: Sequence[Json], deleted: float = 0.0) -> None:
        """Everything up to the last Store."""
        self.load(session, keys)
        _store_all(session, [(self, keys)], deleted)

    def load(self, session: Session, keys: Sequence[Json]) -> None:
        """Send a Load for each key, in any order. With delta updates there are none."""
        if self.is_standard:
            session.load(*self.random.sample(keys, len(keys)), binding=self.binding, packed=self.packed)

    def check_loaded(self, keys: Sequence[Json], documents: Sequence[Json]) -> None:
        """The last version of each document was loaded, once."""
        names = map(encode_key, keys) if self.is_standard else ()
        expected = [self.documents[name] for name in names if name in self.documents]
        assert sorted(map(encode_key, documents)) == sorted(map(encode_key, expected))

    def make_rows(self, keys: Sequence[Json], deleted: float) -> Iterator[Row]:
        """Yield the Stores, in the order of the packed keys."""
        for key in sorted(keys, key=pack):
            document = self.make_document(key, next(self.versions))
            # With delta updates, each version is another row.
            name = encode_key(key) if self.is_standard else encode_key(document)
            exists, is_deleted = name in self.documents, self.random.random() < deleted
            if (is_deleted and self.hard_delete and self.is_standard) or self.is_rejected(document):
                self.documents.pop(name, None)
            else:
                self.documents[name] = document
            yield Row(self.binding, document, delete=is_deleted, exists=exists)

    @property
    def is_standard(self) -> bool:
        return not self.collection.settings.get("delta_updates", True)


# Of each source, the keys that change in one transaction.
Changes: TypeAlias = Sequence[tuple[UpdatingSource, Sequence[Json]]]


def hold_transactions(session: Session, transactions: Sequence[Changes], deleted: float = 0.0) -> None:
    """Hold these transactions as the runtime does: the Loads of one are sent before the one before is acknowledged."""
    _load_all(session, transactions[0])
    for changes, following in zip(transactions, [*transactions[1:], []], strict=True):
        _store_all(session, changes, deleted)
        session.start_commit()
        session.send_acknowledge()
        _load_all(session, following)
        session.acknowledged()


def _load_all(session: Session, changes: Changes) -> None:
    for source, keys in changes:
        source.load(session, keys)


def _store_all(session: Session, changes: Changes, deleted: float) -> None:
    loaded: dict[int, list[Json]] = {}
    for binding, document in session.flush():
        loaded.setdefault(binding, []).append(document)
    for source, keys in changes:
        source.check_loaded(keys, loaded.pop(source.binding, []))
    assert not loaded
    for source, keys in changes:
        session.store_rows(*source.make_rows(keys, deleted), packed=source.packed)


def encode_key(key: Json) -> str:
    """A text that is different for different keys, and for different documents."""
    return json.dumps(key)
