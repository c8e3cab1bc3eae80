"""The loop that serves requests: it checks, handles and answers each one before it takes the next."""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from connector.host import facts, signals
from connector.host.facts import AcknowledgedTransaction
from connector.host.logs import Event, fields
from connector.host.signals import Stopped
from connector.rpc import spec
from protocol import request, response, stdio
from protocol.flow import ConnectorState, Json
from protocol.lifecycle import Lifecycle
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response
from protocol.stdio import RequestReader, Wire

if TYPE_CHECKING:
    from connector.session.transactions import Session

log = logging.getLogger(__name__)

Send: TypeAlias = Callable[[Response], None]

QUICK_TRANSACTIONS: Final = 3  # at the start of a session, so that the person who started it soon sees rows


def serve(requests: RequestReader, wire: Wire) -> None:
    """Serve requests until the input ends. Raises ProtocolError if it ends at a point where the protocol forbids it."""
    lifecycle = Lifecycle()

    def send(answer: Response) -> None:
        lifecycle.check_response(answer)
        with signals.writing_to_stdout():
            stdio.write_response(wire, answer)

    checked = _check_order(requests, lifecycle)
    for message in checked:
        # Import these only when needed: spec must answer at once, without loading PyIceberg.
        match message:
            case request.Spec():
                send(spec.spec())
            case request.Validate():
                from connector.rpc.validate import validate

                send(validate(message))
            case request.Apply():
                from connector.rpc.apply import apply

                send(apply(message))
            case request.Open():
                from connector.rpc.open import handle_open, start_session

                with handle_open(message) as tables:
                    send(response.Opened(tables.may_have_other_rows))
                    config, advanced = tables.config, tables.config.advanced
                    interval = UploadInterval(
                        config.upload_interval, advanced.commit_after_rows, advanced.commit_after_bytes
                    )
                    with start_session(tables) as session, session.retry_pending(requests.interrupt):
                        _serve_transactions(session, interval, checked, requests, send)


def _check_order(requests: RequestReader, lifecycle: Lifecycle) -> Iterator[Request]:
    for message in requests:
        try:
            lifecycle.check_request(message)
        except ProtocolError as error:
            raise ProtocolError(f"line {requests.line}: {error}") from None
        yield message
        signals.raise_again()
    lifecycle.check_end()


class UploadInterval:
    """Decides how long each acknowledgement of a session is held back. Otherwise small transactions would make a
    snapshot every second. Meanwhile the runtime reads more input into the next transaction, which gets larger.

    A transaction is not delayed if it has `enough_rows` or `enough_bytes`: more input may be waiting.
    """

    def __init__(self, interval: timedelta, enough_rows: int | None, enough_bytes: int) -> None:
        self._interval = interval.total_seconds()
        self._enough_rows = enough_rows
        self._enough_bytes = enough_bytes
        self._rows = self._transactions = 0

    def count_rows(self, rows: int) -> None:
        """Note that the open transaction has received so many rows."""
        self._rows += rows

    def find_delay(self, staged: int | None) -> float:
        """Return the delay in seconds of a transaction that staged so many bytes of data files; None if it staged
        nothing. A transaction that only deletes rows has staged 0 bytes.

        It does not matter if a table refuses the commit: its small transactions must not pile up either.
        """
        rows, self._rows = self._rows, 0
        if staged is None:
            return 0.0
        self._transactions += 1
        is_large = staged >= self._enough_bytes or (self._enough_rows is not None and rows >= self._enough_rows)
        return 0.0 if is_large or self._transactions <= QUICK_TRANSACTIONS else self._interval


def _serve_transactions(
    session: "Session", interval: UploadInterval, checked: Iterator[Request], requests: RequestReader, send: Send
) -> None:
    """Serve the transactions of a session. The requests come in the order that the lifecycle allows."""
    from connector.model.state import StagedTransaction

    # Open has committed what earlier sessions staged. The first answer reports it.
    staged = StagedTransaction()
    for message in checked:
        match message:
            case request.Acknowledge():
                _check_patches(message.state_patches, requests)
                answer = response.Acknowledged(_patch(session.acknowledge(staged).patch))
                held = _hold_back(interval.find_delay(staged.size), requests, partial(send, answer))
                if facts.observe:
                    facts.observe(AcknowledgedTransaction(held, bool(staged.commits)))
                transaction = session.begin()
            case request.Load():
                transaction.load(message)
            case request.Flush():
                _check_patches(message.state_patches, requests)
                for text in transaction.answer_loads(message):
                    send(response.Loaded(text))
                send(response.Flushed())
            case request.Store():
                interval.count_rows(message.count)
                transaction.store(message)
            case request.StartCommit():
                _check_patches(message.state_patches, requests)
                staged = transaction.start_commit(message)
                send(response.StartedCommit(_patch(staged.patch)))


def _hold_back(seconds: float, requests: RequestReader, answer: Callable[[], None]) -> float:
    """Answer after `seconds`. Answer earlier if waiting no longer helps: the next flush has arrived, the input has
    ended, or the process has to stop. Return for how many seconds it has waited."""
    began = time.monotonic()
    if seconds > 0:
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
        log.info(
            "waiting until %s before the next transaction may commit (upload_interval)",
            until,
            extra=fields(Event.HELD, seconds=seconds),
        )
        try:
            requests.wait_for((request.Flush,), seconds)
        except Stopped:
            answer()
            raise
    held = time.monotonic() - began
    answer()
    return held if seconds > 0 else 0.0


def _check_patches(patches: tuple[Json, ...], requests: RequestReader) -> None:
    if None in patches:
        raise ProtocolError(
            f"line {requests.line}: a state patch is null: a shard reset the connector state in the middle of a session"
        )


def _patch(patch: Json | None) -> ConnectorState | None:
    return None if patch is None else ConnectorState(patch)
