"""Blocks of bytes in, numbered requests out: runs of Store lines pass undecoded, at the speed of a scan."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from protocol.codec import decode_request
from protocol.protocol_error import ProtocolError
from protocol.request import Request, Store

LONGEST_LINE: Final = 256 << 20

_BLANK: Final = re.compile(rb"[ \t\r\n]*")

# The beginning of a Store line with its binding in group 1 or 2; without these groups the line probably leaves it out.
_STORE: Final = re.compile(
    rb"""[ \t]* \{ [ \t]* "store" [ \t]* : [ \t]* \{ [ \t]* "
    (?: binding" [ \t]* : [ \t]* (?: "([0-9]{1,9})" | ([0-9]{1,9}) ) [ \t]* ,
      | (?!binding) [a-zA-Z]+ )""",
    re.VERBOSE,
)


class Numbered(NamedTuple):
    """A request with the number of its line, or what is wrong with a line: nothing after that counts."""

    line: int
    size: int  # bytes
    request: Request | ProtocolError


class RequestParser:
    """Cuts the input into lines and turns lines into requests, wherever the blocks happen to end."""

    def __init__(self, longest_line: int = LONGEST_LINE) -> None:
        self._longest_line = longest_line
        self._line = 1  # the number of the line that `_begun` begins
        self._begun: list[bytes] = []
        self._begun_size = 0

    def receive(self, block: bytes) -> list[Numbered]:
        """Every request whose line ends in this block."""
        return list(_merge(self._received(block)))

    def end(self) -> list[Numbered]:
        """The last line, if it has no newline."""
        line = b"".join(self._begun) + b"\n"
        last = _single(line, 0, len(line), self._line)
        return [last] if last else []

    def _received(self, block: bytes) -> Iterator[Numbered]:
        end = block.rfind(b"\n") + 1
        start = 0
        newlines = _newlines(block)
        if newlines and self._begun:
            start = block.index(b"\n") + 1
            line = b"".join([*self._begun, block[:start]])
            yield from _requests(line, 0, len(line), self._line, 1)
            self._begun, self._begun_size = [], 0
            self._line += 1
            newlines -= 1
        if newlines:
            yield from _requests(block, start, end, self._line, newlines)
            self._line += newlines
        if end < len(block):
            self._begun.append(block[end:])
            self._begun_size += len(block) - end
        if self._begun_size > self._longest_line:
            size = self._longest_line >> 20
            yield Numbered(self._line, 0, ProtocolError(f"line {self._line}: longer than {size} MiB"))


def _requests(block: bytes, start: int, end: int, line: int, left: int) -> Iterator[Numbered]:
    """The requests of the `left` whole lines between `start` and `end`."""
    entire = True
    while left:
        first = _first(block, start, end, line)
        if isinstance(first, _Run):
            # That all lines are one run is guessed once at most, since a wrong guess costs a scan of them all.
            entire = entire and block.count(b"\n" + first.prefix, start, end) == left - 1
            stop = end if entire else first.end(block, start, end)
            count = left if entire else block.count(b"\n" + first.prefix, start, stop) + 1
            yield _stores(first.binding, block, start, stop, line, count)
        else:
            stop, count = block.index(b"\n", start) + 1, 1
            if first:
                yield first
        start, line, left = stop, line + count, left - count


class _Run(NamedTuple):
    """Lines that begin alike: Stores of one binding, unless the guess is wrong."""

    binding: int
    prefix: bytes

    def end(self, block: bytes, start: int, end: int) -> int:
        last = _line_before_another(self.prefix).search(block, start, end)
        assert last, "the last line ends in a newline"
        return last.end()


@lru_cache(maxsize=1024)
def _line_before_another(prefix: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?!" + re.escape(prefix) + rb")")


def _first(block: bytes, start: int, end: int, line: int) -> _Run | Numbered | None:
    """The run that the first line begins, or else that line's request."""
    begin = _STORE.match(block, start, end)
    if begin and begin.lastindex:
        return _Run(int(begin[begin.lastindex]), begin[0])
    single = _single(block, start, block.index(b"\n", start) + 1, line)
    # The binding may be left out, which means 0, or may come later in the line.
    if begin and single and isinstance(single.request, Store) and single.request.binding == 0:
        return _Run(0, begin[0])
    return single


def _stores(binding: int, block: bytes, start: int, end: int, line: int, count: int) -> Numbered:
    return Numbered(line, end - start, Store(binding, line, count, (memoryview(block)[start:end],)))


def _single(block: bytes, start: int, end: int, line: int) -> Numbered | None:
    """The general path: the request of one line, or None if it is blank."""
    if _BLANK.fullmatch(block, start, end):
        return None
    message: Request | ProtocolError
    try:
        message = decode_request(memoryview(block)[start:end])
    except ProtocolError as error:
        message = ProtocolError(f"line {line}: {error}")
    if isinstance(message, Store):
        message = Store(message.binding, line, message.count, message.pieces)
    return Numbered(line, end - start, message)


def _merge(requests: Iterable[Numbered]) -> Iterator[Numbered]:
    """Merges adjacent Stores of one binding. A blank line keeps them apart, so that line numbers stay true."""
    stores: list[Store] = []
    for numbered in requests:
        message = numbered.request
        if stores and not (isinstance(message, Store) and _continues(message, stores[-1])):
            yield _join(stores)
            stores = []
        if isinstance(message, Store):
            stores.append(message)
        else:
            yield numbered
    if stores:
        yield _join(stores)


def _continues(store: Store, last: Store) -> bool:
    return store.binding == last.binding and store.first_line == last.first_line + last.count


def _join(stores: list[Store]) -> Numbered:
    store = stores[0]
    if len(stores) > 1:
        pieces = tuple(chain.from_iterable(store.pieces for store in stores))
        store = Store(store.binding, store.first_line, sum(store.count for store in stores), pieces)
    return Numbered(store.first_line, store.size, store)


def _newlines(block: bytes) -> int:
    # bytes.count looks at every byte; replace jumps from newline to newline, at three times the speed.
    return len(block) - len(block.replace(b"\n", b""))
