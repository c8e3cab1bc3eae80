"""The loop: a request is judged, handled and answered before the next one is taken up."""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from connector.host import signals
from connector.host.logs import Event, fields
from connector.host.signals import UNREAD, Stopped
from connector.model.state import StagedTransaction
from connector.rpc import spec
from connector.session.upload_interval import UploadInterval
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


def serve(requests: RequestReader, wire: Wire) -> None:
    """Answer requests until the input ends where it may."""
    lifecycle = Lifecycle()

    def send(answer: Response) -> None:
        lifecycle.check_response(answer)
        try:
            stdio.write_response(wire, answer)
        except BrokenPipeError:
            raise Stopped(UNREAD) from None

    judged = _check_order(requests, lifecycle)
    for message in judged:
        # Imported when needed: spec must answer at once, without loading PyIceberg.
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
                from connector.rpc.open import handle_open

                with handle_open(message) as (session, upload_interval):
                    send(response.Opened())
                    with session.retrying(requests.interrupt):
                        _serve_transactions(session, UploadInterval(upload_interval), judged, requests, send)


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
    session: "Session", interval: UploadInterval, judged: Iterator[Request], requests: RequestReader, send: Send
) -> None:
    """The lifecycle has judged the order of the messages."""
    staged = StagedTransaction()  # none: open has committed an earlier session's, and the first answer reports them
    for message in judged:
        match message:
            case request.Acknowledge():
                _refuse_reset(message.state_patches, requests)
                landed = session.acknowledge(staged)
                answer = response.Acknowledged(_patch(landed.patch))
                _hold(interval.hold(landed.size), requests, partial(send, answer))
                transaction = session.begin()
            case request.Load():
                raise ProtocolError(f"line {requests.line}: load may not be sent to a delta-updates binding")
            case request.Flush():
                _refuse_reset(message.state_patches, requests)
                send(response.Flushed())
            case request.Store():
                transaction.store(message)
            case request.StartCommit():
                _refuse_reset(message.state_patches, requests)
                staged = transaction.start_commit(message)
                send(response.StartedCommit(_patch(staged.patch)))


def _hold(seconds: float, requests: RequestReader, answer: Callable[[], None]) -> None:
    """Answer after so many seconds, or as soon as waiting serves nobody: the next flush is there already, the input has
    ended, or we are asked to stop."""
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
    answer()


def _refuse_reset(patches: tuple[Json, ...], requests: RequestReader) -> None:
    if None in patches:
        raise ProtocolError(
            f"line {requests.line}: the connector state was reset in the middle of a session: a shard replaced it"
        )


def _patch(patch: Json | None) -> ConnectorState | None:
    return None if patch is None else ConnectorState(patch)
