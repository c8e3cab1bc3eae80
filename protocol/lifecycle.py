"""The order of messages, as tables. The state is the last message of each side, and the response that is still due."""

from collections.abc import Iterable
from typing import Final

from protocol import request, response
from protocol.codec import message_name
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response

_BEGINNING: Final = (request.Spec, request.Validate, request.Apply, request.Open)

REQUEST_MAY_FOLLOW: Final[dict[type[Request] | None, tuple[type[Request], ...]]] = {
    None: _BEGINNING,
    request.Spec: _BEGINNING,
    request.Validate: _BEGINNING,
    request.Apply: _BEGINNING,
    request.Open: (request.Acknowledge,),
    request.Acknowledge: (request.Acknowledge, request.Load, request.Flush),  # it may be repeated
    request.Load: (request.Load, request.Flush),
    request.Flush: (request.Store, request.StartCommit),
    request.Store: (request.Store, request.StartCommit),
    request.StartCommit: (request.Acknowledge,),
}

# A runtime may stop after StartCommit and before Acknowledge. The next session then commits the transaction.
INPUT_MAY_END_AFTER: Final[tuple[type[Request] | None, ...]] = (
    None,
    request.Spec,
    request.Validate,
    request.Apply,
    request.Acknowledge,
    request.StartCommit,
)

# The response that must be sent before the next request is handled. A Load may be answered later, a Store never is.
ANSWER: Final[dict[type[Request], type[Response]]] = {
    request.Spec: response.Spec,
    request.Validate: response.Validated,
    request.Apply: response.Applied,
    request.Open: response.Opened,
    request.Acknowledge: response.Acknowledged,
    request.Flush: response.Flushed,
    request.StartCommit: response.StartedCommit,
}

RESPONSE_MAY_ANSWER: Final[dict[type[Response], tuple[type[Request], ...]]] = {
    response.Spec: (request.Spec,),
    response.Validated: (request.Validate,),
    response.Applied: (request.Apply,),
    response.Opened: (request.Open,),
    response.Acknowledged: (request.Acknowledge,),
    response.Loaded: (request.Load, request.Flush),
    response.Flushed: (request.Flush,),
    response.StartedCommit: (request.StartCommit,),
}

_FIRST: Final = (response.Spec, response.Validated, response.Applied, response.Opened)

RESPONSE_MAY_FOLLOW: Final[dict[type[Response] | None, tuple[type[Response], ...]]] = {
    None: _FIRST,
    response.Spec: _FIRST,
    response.Validated: _FIRST,
    response.Applied: _FIRST,
    response.Opened: (response.Acknowledged,),
    # Loaded may not overtake Acknowledged: it would show the table without the commit in progress.
    response.Acknowledged: (response.Acknowledged, response.Loaded, response.Flushed),
    response.Loaded: (response.Loaded, response.Flushed),
    response.Flushed: (response.StartedCommit,),
    response.StartedCommit: (response.Acknowledged,),
}


class Lifecycle:
    """Checks the order of all messages of a process, and that none resets the state of a session.

    The runtime's faults raise ProtocolError, ours AssertionError.
    """

    def __init__(self) -> None:
        self._request: type[Request] | None = None
        self._response: type[Response] | None = None
        self._due: type[Response] | None = None

    def check_request(self, message: Request) -> None:
        """Check the next request before it is handled. Raises ProtocolError."""
        name, last = message_name(type(message)), self._request
        assert self._due is None, f"{_name_of(last)} must be answered before {name} is handled"
        expected = REQUEST_MAY_FOLLOW[last]
        if type(message) not in expected:
            place = "come first" if last is None else f"follow {message_name(last)}"
            raise ProtocolError(f"{name} may not {place}: expected {_join_names(expected)}")
        match message:
            case request.Acknowledge() | request.Flush() | request.StartCommit() if None in message.state_patches:
                raise ProtocolError(
                    "a state patch is null: a shard reset the connector state in the middle of a session. "
                    "Start the task again"
                )
        self._request = type(message)
        self._due = ANSWER.get(type(message))

    def check_response(self, message: Response) -> None:
        """Check a response before it is written."""
        kind = type(message)
        name = message_name(kind)
        assert self._request in RESPONSE_MAY_ANSWER[kind], f"{name} cannot answer {_name_of(self._request)}"
        assert kind in RESPONSE_MAY_FOLLOW[self._response], f"{name} may not follow {_name_of(self._response)}"
        assert kind in (self._due, response.Loaded), f"{_name_of(self._request)} has been answered"
        self._response = kind
        if kind is self._due:
            self._due = None

    def check_end(self) -> None:
        """Check that the input may end here. Raises ProtocolError."""
        last = self._request
        assert self._due is None, f"{_name_of(last)} must be answered before the end of the input is handled"
        if last not in INPUT_MAY_END_AFTER:
            raise ProtocolError(
                f"input ended after {_name_of(last)}: expected {_join_names(REQUEST_MAY_FOLLOW[last])}. An open "
                "transaction is discarded. The sender of the requests has stopped, and its own log says why"
            )


def _name_of(message: type[Request] | type[Response] | None) -> str:
    return "nothing" if message is None else message_name(message)


def _join_names(messages: Iterable[type[Request]]) -> str:
    *others, last = map(message_name, messages)
    return f"{', '.join(others)} or {last}" if others else last
