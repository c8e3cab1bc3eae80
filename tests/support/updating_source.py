"""A source of random updates and deletions, with the model of what its table has to hold."""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

from fixtures.collection import Collection
from fixtures.conversation import Row
from support.runtime import Session

Json: TypeAlias = Any
MakeDocument: TypeAlias = Callable[[Json, int], Json]  # of a key (a JSON array) and a version


class UpdatingSource:
    """The documents of one binding, by key. It plays the runtime: it loads before it stores."""

    def __init__(
        self,
        collection: Collection,
        make_document: MakeDocument,
        random: Random,
        *,
        binding: int = 0,
        hard_delete: bool = False,
        packed: bool = False,
    ) -> None:
        self.documents: dict[str, Json] = {}  # by key: what the table must have
        self._collection = collection
        self._make_document = make_document
        self._random = random
        self._binding = binding
        self._hard_delete = hard_delete
        self._packed = packed
        self._versions = iter(range(1, 1 << 40))

    def transact(self, session: Session, keys: Sequence[Json], deleted: float = 0.0) -> None:
        """One transaction that stores or deletes each of these keys once, staged and acknowledged."""
        self.stage(session, keys, deleted)
        session.start_commit()
        session.acknowledge()

    def stage(self, session: Session, keys: Sequence[Json], deleted: float = 0.0) -> None:
        """Everything up to the last Store."""
        session.load(*keys, binding=self._binding, packed=self._packed)
        loaded = {self._name(document): document for _, document in session.flush()}
        expected = {name: self.documents[name] for key in keys if (name := encode_key(key)) in self.documents}
        assert loaded == expected, "a Load returns the last version of each document"
        session.store_rows(*self._store(keys, deleted), packed=self._packed)

    def _store(self, keys: Sequence[Json], deleted: float) -> Iterator[Row]:
        for key in sorted(keys, key=encode_key):
            name = encode_key(key)
            exists, is_deleted = name in self.documents, self._random.random() < deleted
            document = self._make_document(key, next(self._versions))
            if is_deleted and self._hard_delete:
                self.documents.pop(name, None)
            else:
                self.documents[name] = document
            yield Row(self._binding, document, delete=is_deleted, exists=exists)

    def _name(self, document: Json) -> str:
        return encode_key(self._collection.key_of(document))


def encode_key(key: Json) -> str:
    return json.dumps(key)
