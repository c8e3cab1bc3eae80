"""The tables against two grammars that were written without them, over every sequence of messages."""

import re
from collections.abc import Iterator
from copy import copy
from itertools import product
from typing import Final

import pytest

from protocol import flow, request, response
from protocol.lifecycle import Lifecycle
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response

REQUESTS: Final[dict[str, Request]] = {
    "s": request.Spec(),
    "v": request.Validate(),
    "a": request.Apply(),
    "o": request.Open(),
    "k": request.Acknowledge(),
    "l": request.Load(0, 1, 1, (b'{"load":{}}\n',)),
    "f": request.Flush(),
    "t": request.Store(0, 1, 1, (b'{"store":{}}\n',)),
    "c": request.StartCommit(),
}
RESPONSES: Final[dict[str, Response]] = {
    "S": response.Spec({}, {}, ""),
    "V": response.Validated(()),
    "A": response.Applied(),
    "O": response.Opened(),
    "K": response.Acknowledged(),
    "L": response.Loaded(b'{"loaded":{}}\n'),
    "F": response.Flushed(),
    "C": response.StartedCommit(flow.ConnectorState({})),
}
ANSWERS: Final = {letter: letter.upper() for letter in "svaokfc"}

# What requests may have been handled so far, and those of them after which the input may end.
REQUEST_GRAMMAR: Final = re.compile(r"[sva]*(o(k+(l*ft*ck+)*(l*(ft*c?)?)?)?)?")
END_GRAMMAR: Final = re.compile(r"[sva]*(ok+(l*ft*ck+)*(l*ft*c)?)?")

# A whole conversation, responses (capitals) in between: nothing is loaded before the first Load.
TRANSACTION: Final = "(l[lL]*)?fL*Ft*cC(kK)+"
CONVERSATION_GRAMMAR: Final = re.compile(rf"(sS|vV|aA)*(oO((kK)+({TRANSACTION})*)?)?")


def take_up(lifecycle: Lifecycle, letter: str) -> None:
    lifecycle.check_request(REQUESTS[letter])
    if letter in ANSWERS:
        lifecycle.check_response(RESPONSES[ANSWERS[letter]])


def accepted_sequences(length: int) -> Iterator[tuple[str, Lifecycle]]:
    """Every sequence of answered requests that the lifecycle accepts, shortest first."""
    accepted = [("", Lifecycle())]
    for _ in range(length + 1):
        yield from accepted
        longer = []
        for (sequence, lifecycle), letter in product(accepted, REQUESTS):
            following = copy(lifecycle)
            try:
                take_up(following, letter)
            except ProtocolError:
                continue
            longer.append((sequence + letter, following))
        accepted = longer


def test_all_request_sequences_up_to_length_6_are_judged_as_the_grammar_does() -> None:
    accepted = {sequence for sequence, _ in accepted_sequences(6)}
    for length in range(7):
        for letters in product(REQUESTS, repeat=length):
            sequence = "".join(letters)
            assert (sequence in accepted) == bool(REQUEST_GRAMMAR.fullmatch(sequence)), sequence


def test_the_input_may_end_where_the_grammar_says_so() -> None:
    for sequence, lifecycle in accepted_sequences(6):
        try:
            lifecycle.check_end()
            may_end = True
        except ProtocolError:
            may_end = False
        assert may_end == bool(END_GRAMMAR.fullmatch(sequence)), sequence


def begins_a_conversation(placement: str) -> bool:
    """Whether some conversation of the grammar begins like this: its shortest completions are tried."""
    completions = ["", "S", "V", "A", "O", "K", "F", "C", "FcCkK", "fFcCkK", "cCkK", "CkK", "kK"]
    return any(CONVERSATION_GRAMMAR.fullmatch(placement + completion) for completion in completions)


@pytest.mark.parametrize(("beginning", "length"), [("", 7), ("oOkK", 9), ("oOkKlfF", 8), ("oOkKfFcCkK", 8)])
def test_all_placements_of_responses_are_judged_as_the_grammar_does(beginning: str, length: int) -> None:
    placements = [beginning]
    for _ in range(length):
        longer = []
        for placement, letter in product(placements, [*REQUESTS, *RESPONSES]):
            accepted = replayed(placement + letter)
            assert accepted == begins_a_conversation(placement + letter), placement + letter
            if accepted:
                longer.append(placement + letter)
        placements = longer


def replayed(placement: str) -> bool:
    lifecycle = Lifecycle()
    try:
        for letter in placement:
            if letter in REQUESTS:
                lifecycle.check_request(REQUESTS[letter])
            else:
                lifecycle.check_response(RESPONSES[letter])
    except (ProtocolError, AssertionError):
        return False
    return True


@pytest.mark.parametrize(
    ("sequence", "complaint"),
    [
        ("f", "flush may not come first: expected spec, validate, apply or open"),
        ("of", "flush may not follow open: expected acknowledge"),
        ("okt", "store may not follow acknowledge: expected acknowledge, load or flush"),
        ("okfto", "open may not follow store: expected store or startCommit"),
        ("okl" + "k", "acknowledge may not follow load: expected load or flush"),
    ],
)
def test_a_request_out_of_order_is_told_what_was_expected(sequence: str, complaint: str) -> None:
    *before, last = list(sequence)
    lifecycle = Lifecycle()
    for letter in before:
        take_up(lifecycle, letter)
    with pytest.raises(ProtocolError) as raised:
        lifecycle.check_request(REQUESTS[last])
    assert str(raised.value) == complaint


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("o", request.Acknowledge(({}, None))),
        ("ok", request.Flush((None,))),
        ("okf", request.StartCommit(state_patches=({}, None))),
    ],
)
def test_no_request_of_a_session_may_reset_the_state(before: str, message: Request) -> None:
    lifecycle = Lifecycle()
    for letter in before:
        take_up(lifecycle, letter)
    with pytest.raises(ProtocolError, match="a state patch is null: a shard reset the connector state in the middle"):
        lifecycle.check_request(message)


def test_an_end_of_input_inside_of_a_transaction_is_told_what_was_expected() -> None:
    lifecycle = Lifecycle()
    for letter in "okft":
        take_up(lifecycle, letter)
    with pytest.raises(ProtocolError) as raised:
        lifecycle.check_end()
    assert str(raised.value) == (
        "input ended after store: expected store or startCommit. An open transaction is discarded. The sender of the "
        "requests has stopped, and its own log says why"
    )


@pytest.mark.parametrize("letter", ANSWERS)
def test_a_request_left_unanswered_is_our_fault(letter: str) -> None:
    lifecycle = Lifecycle()
    for before in {"k": "o", "f": "ok", "c": "okf"}.get(letter, ""):
        take_up(lifecycle, before)
    lifecycle.check_request(REQUESTS[letter])
    with pytest.raises(AssertionError, match="must be answered"):
        lifecycle.check_request(request.Spec())
    with pytest.raises(AssertionError, match="must be answered"):
        lifecycle.check_end()


@pytest.mark.parametrize(
    ("placement", "complaint"),
    [
        ("S", "spec cannot answer nothing"),
        ("sV", "validated cannot answer spec"),
        ("sSS", "spec has been answered"),
        ("oOkKL", "loaded cannot answer acknowledge"),
        ("oOkKfFL", "loaded may not follow flushed"),
    ],
)
def test_a_response_out_of_order_is_our_fault(placement: str, complaint: str) -> None:
    *before, last = list(placement)
    lifecycle = Lifecycle()
    for letter in before:
        if letter in REQUESTS:
            lifecycle.check_request(REQUESTS[letter])
        else:
            lifecycle.check_response(RESPONSES[letter])
    with pytest.raises(AssertionError, match=complaint):
        lifecycle.check_response(RESPONSES[last])
