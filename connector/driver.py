"""The loop that serves requests: it checks, handles and answers each one before it takes the next."""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

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
    from connector.session.upload_interval import UploadInterval

log = logging.getLogger(__name__)

Send: TypeAlias = Callable[[Response], None]


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
    session: "Session", interval: "UploadInterval", checked: Iterator[Request], requests: RequestReader, send: Send
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
    transaction: "OpenTransaction", interval: "UploadInterval", checked: Iterator[Request], send: Send
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


def _make_interval(config: "EndpointConfig", task: Materialization) -> "UploadInterval":
    from connector.session.upload_interval import UploadInterval

    advanced = config.advanced
    interval = timedelta() if task.is_scheduled else config.commit_interval
    return UploadInterval(interval, advanced.commit_after_rows, advanced.commit_after_bytes)


def _patch(patch: Json | None) -> ConnectorState | None:
    return None if patch is None else ConnectorState(patch)
