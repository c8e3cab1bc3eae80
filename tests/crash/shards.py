"""A session of all shards of a task, one protocol event after the other, so that a fault can be aimed at each."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from crash.source import Share
from fixtures.conversation import Row
from support.sessions.runtime import Runtime, patches

Json: TypeAlias = Any


class Event(Enum):
    """What happens in a session, in this order, from FLUSHED on over and over."""

    OPENED = auto()  # and its recovery recorded
    FLUSHED = auto()  # and its Loads answered
    HALF_STORED = auto()  # sent, that is
    STARTED_COMMIT = auto()
    COMMITTED = auto()  # by the runtime's log
    ACKNOWLEDGED = auto()
    RECORDED = auto()  # and so is the state that came with it


class Shards:
    """The live processes of one session, side by side: they commit together or not at all, and the death of one ends
    the session for all. `share` is what of a number of documents is in a key range."""

    def __init__(
        self,
        runtime: Runtime,
        ranges: Sequence[Json],
        transaction_size: int,
        share: Callable[[range, Json], Share],
        *,
        publish: bool,
    ) -> None:
        self.sessions: Final = [runtime.start(held, publish=publish) for held in ranges]
        self._runtime = runtime
        self._ranges = ranges
        self.transaction_size = transaction_size
        self._share = share

    @property
    def documents(self) -> range:
        """What the next transaction reads of the source."""
        return range(self._runtime.checkpoint, self._runtime.checkpoint + self.transaction_size)

    def events(self) -> Iterator[Event]:
        for session in self.sessions:
            session.opened()
            session.send_acknowledge()
        acknowledged = self._answers("acknowledged")
        self._runtime.record(*acknowledged)
        yield Event.OPENED
        while True:
            documents = self.documents
            shares = [self._share(documents, held) for held in self._ranges]
            for session, share in zip(self.sessions, shares, strict=True):
                share.load(session, patches(acknowledged))
            yield Event.FLUSHED
            rows = [self._share(documents, held).rows for held in self._ranges]
            self._store([own[: len(own) // 2] for own in rows])
            yield Event.HALF_STORED
            self._store([own[len(own) // 2 :] for own in rows])
            for session in self.sessions:
                session.send_start_commit(documents.stop)
            started = self._answers("startedCommit")
            yield Event.STARTED_COMMIT
            self._runtime.record(*started, checkpoint=documents.stop)
            yield Event.COMMITTED
            for session in self.sessions:
                session.send_acknowledge(patches(started))
            acknowledged = self._answers("acknowledged")
            yield Event.ACKNOWLEDGED
            self._runtime.record(*acknowledged)
            yield Event.RECORDED

    def _answers(self, kind: str) -> list[Json]:
        return [session.connector.expect(kind) for session in self.sessions]

    def _store(self, rows: Sequence[Sequence[Row]]) -> None:
        for session, own in zip(self.sessions, rows, strict=True):
            session.store_rows(*own)
