"""The loop that serves requests: it checks, handles and answers each one before it takes the next.

Acknowledgements are held back, always for the same time or by a schedule. Otherwise small transactions would make a
snapshot every second. Meanwhile the runtime reads more input into the next transaction, which gets larger.
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from connector.config.sync_schedule import SyncSchedule
from connector.host import facts, signals
from connector.host.facts import AcknowledgedTransaction, HeldTransaction
from connector.host.logs import Event, fields
from connector.rpc import spec
from protocol import request, response, stdio
from protocol.flow import ConnectorState, Json, Materialization
from protocol.lifecycle import Lifecycle
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response
from protocol.stdio import RequestReader, Wire

if TYPE_CHECKING:
    from connector.config.endpoint_config import EndpointConfig
    from connector.model.state import StagedTransaction
    from connector.session.transactions import OpenTransaction, Session

log = logging.getLogger(__name__)

QUICK_TRANSACTIONS: Final = 3  # at the start of a session, so that the person who started it soon sees rows

Send: TypeAlias = Callable[[Response], None]


class UploadInterval:
    """Decides how long each acknowledgement of a session is held back.

    A transaction is not delayed if it has `enough_rows` or `enough_bytes`: more input may be waiting.
    """

    def __init__(
        self,
        interval: timedelta | SyncSchedule,
        enough_rows: int | None,
        enough_bytes: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._interval = interval
        self._enough_rows = enough_rows
        self._enough_bytes = enough_bytes
        self._now = now
        self._rows = self._transactions = 0

    def count_rows(self, rows: int) -> None:
        """Note that the open transaction has received so many rows."""
        self._rows += rows

    def end_transaction(self, staged_size: int | None) -> float:
        """End the open transaction, and return the delay of its acknowledgement in seconds.

        `staged_size` are the bytes of its data files: 0 if it only deletes rows, None if it has staged nothing. It does
        not matter if a table refuses the commit: its small transactions must not pile up either.
        """
        rows, self._rows = self._rows, 0
        if staged_size is None:
            return 0.0
        self._transactions += 1
        has_enough_rows = self._enough_rows is not None and rows >= self._enough_rows
        is_large = has_enough_rows or staged_size >= self._enough_bytes
        return 0.0 if is_large or self._transactions <= QUICK_TRANSACTIONS else self._find_delay()

    def _find_delay(self) -> float:
        interval = self._interval
        if isinstance(interval, SyncSchedule):
            interval = interval.find_interval(self._now())
        return interval.total_seconds()


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
                    with start_session(tables, requests.interrupt) as session:
                        interval = _make_interval(tables.config, message.materialization)
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


def _serve_transactions(
    session: "Session", interval: UploadInterval, checked: Iterator[Request], requests: RequestReader, send: Send
) -> None:
    """Serve the transactions of a session until the input ends. Each begins with the Acknowledge of the one before."""
    from connector.model.state import StagedTransaction

    staged = StagedTransaction()  # of this session; the first answer reports what Open has committed
    for _acknowledge in checked:
        answer = response.Acknowledged(_patch(session.acknowledge(staged).patch))
        held = hold_back(interval.end_transaction(staged.size), requests, partial(send, answer))
        facts.report(AcknowledgedTransaction(held, bool(staged.commits)))
        served = _serve_transaction(session.begin(), interval, checked, send)
        if served is None:
            break
        staged = served


def _serve_transaction(
    transaction: "OpenTransaction", interval: UploadInterval, checked: Iterator[Request], send: Send
) -> "StagedTransaction | None":
    """Serve one transaction, and return what it has staged. None if the input ends before its StartCommit."""
    with transaction:
        for message in checked:
            match message:
                case request.Acknowledge():  # repeated: the transaction before has ended
                    send(response.Acknowledged())
                case request.Load():
                    transaction.load(message)
                case request.Flush():
                    for text in transaction.answer_loads(message):
                        send(response.Loaded(text))
                    send(response.Flushed())
                case request.Store():
                    interval.count_rows(message.count)
                    transaction.store(message)
                case request.StartCommit():
                    staged = transaction.start_commit(message)
                    send(response.StartedCommit(_patch(staged.patch)))
                    return staged
        return None


def hold_back(seconds: float, requests: RequestReader, send_answer: Callable[[], None]) -> float:
    """Answer after `seconds`. Answer earlier if waiting no longer helps: the next flush has arrived, the input has
    ended, or the process has to stop. Return for how many seconds it has waited."""
    began = time.monotonic()
    if seconds > 0:
        until = time.time() + seconds
        log.info(
            "acknowledgement is held until %s, so that there are fewer commits",
            time.strftime("%H:%M:%S", time.localtime(until)),
            extra=fields(Event.HELD, seconds=seconds),
        )
        facts.report(HeldTransaction(until))
        try:
            requests.wait_for((request.Flush,), seconds)
        except signals.Stopped:
            # The tables have the rows already. The answer removes the commits from the state.
            send_answer()
            raise
    held = time.monotonic() - began
    send_answer()
    return held if seconds > 0 else 0.0


def _make_interval(config: "EndpointConfig", task: Materialization) -> UploadInterval:
    advanced = config.advanced
    interval = timedelta() if task.is_scheduled else config.commit_interval
    return UploadInterval(interval, advanced.commit_after_rows, advanced.commit_after_bytes)


def _patch(patch: Json | None) -> ConnectorState | None:
    return None if patch is None else ConnectorState(patch)
