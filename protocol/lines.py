"""Parses blocks of bytes into numbered requests. Runs of Store or Load lines are only scanned, not decoded: that is
fast."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from protocol.codec import decode_request
from protocol.protocol_error import ProtocolError
from protocol.request import LineRun, Load, Request, Store

LONGEST_LINE: Final = 256 << 20

_BLANK: Final = re.compile(rb"[ \t\r\n]*")

# The beginning of a line of a run. Without the group `quoted` or `plain`, the line probably has no binding.
_BEGIN: Final = re.compile(
    rb"""[ \t]* \{ [ \t]* "(?P<kind>store|load)" [ \t]* : [ \t]* \{ [ \t]* "
    (?: binding" [ \t]* : [ \t]* (?: "(?P<quoted>[0-9]{1,9})" | (?P<plain>[0-9]{1,9}) ) [ \t]* ,
      | (?!binding) [a-zA-Z]+ )""",
    re.VERBOSE,
)


class Numbered(NamedTuple):
    """A request with the number of its line, or the error of an invalid line. Nothing after an invalid line counts."""

    line: int
    size: int  # bytes
    request: Request | ProtocolError


class RequestParser:
    """Splits the input into lines and parses them. A block may end anywhere, even within a line."""

    def __init__(self, longest_line: int = LONGEST_LINE) -> None:
        self._longest_line = longest_line
        self._line = 1  # the number of the line that begins in `_begun`
        self._begun: list[bytes] = []
        self._begun_size = 0

    def receive(self, block: bytes) -> list[Numbered]:
        """Return the requests whose lines end in this block."""
        return list(_merge(self._parse_block(block)))

    def end(self) -> list[Numbered]:
        """Return the request of the last line if it has no newline."""
        line = b"".join(self._begun) + b"\n"
        last = _parse_line(line, 0, len(line), self._line)
        return [last] if last else []

    def _parse_block(self, block: bytes) -> Iterator[Numbered]:
        end = block.rfind(b"\n") + 1
        start = 0
        newlines = _count_newlines(block)
        if newlines and self._begun:
            start = block.index(b"\n") + 1
            line = b"".join([*self._begun, block[:start]])
            yield from _parse_lines(line, 0, len(line), self._line, 1)
            self._begun, self._begun_size = [], 0
            self._line += 1
            newlines -= 1
        if newlines:
            yield from _parse_lines(block, start, end, self._line, newlines)
            self._line += newlines
        if end < len(block):
            self._begun.append(block[end:])
            self._begun_size += len(block) - end
        if self._begun_size > self._longest_line:
            size = self._longest_line >> 20
            yield Numbered(self._line, 0, ProtocolError(f"line {self._line}: longer than {size} MiB"))


def _parse_lines(block: bytes, start: int, end: int, line: int, left: int) -> Iterator[Numbered]:
    """Yield the requests of the `left` complete lines between `start` and `end`."""
    entire = True
    while left:
        first = _begin_run(block, start, end, line)
        if isinstance(first, _Run):
            # Guess once at most that all lines are one run: a wrong guess costs a scan of all of them.
            entire = entire and block.count(b"\n" + first.prefix, start, end) == left - 1
            stop = end if entire else first.find_end(block, start, end)
            count = left if entire else block.count(b"\n" + first.prefix, start, stop) + 1
            run = first.kind(first.binding, line, count, (memoryview(block)[start:stop],))
            yield Numbered(line, stop - start, run)
        else:
            stop, count = block.index(b"\n", start) + 1, 1
            if first:
                yield first
        start, line, left = stop, line + count, left - count


class _Run(NamedTuple):
    """Lines with the same prefix. They are of one kind and one binding, unless the guess is wrong."""

    kind: type[Load] | type[Store]
    binding: int
    prefix: bytes

    def find_end(self, block: bytes, start: int, end: int) -> int:
        """Return where the run ends: the first line with another prefix begins there."""
        last = _compile_end(self.prefix).search(block, start, end)
        assert last, "the last line ends in a newline"
        return last.end()


@lru_cache(maxsize=1024)
def _compile_end(prefix: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?!" + re.escape(prefix) + rb")")


def _begin_run(block: bytes, start: int, end: int, line: int) -> _Run | Numbered | None:
    """Return the run that begins with the first line, or the request of this line if no run does."""
    begin = _BEGIN.match(block, start, end)
    kind = Load if begin and begin["kind"] == b"load" else Store
    if begin and (binding := begin["quoted"] or begin["plain"]):
        return _Run(kind, int(binding), begin[0])
    single = _parse_line(block, start, block.index(b"\n", start) + 1, line)
    # The line may have no binding, which means 0, or have it at a later place.
    if begin and single and isinstance(single.request, kind) and single.request.binding == 0:
        return _Run(kind, 0, begin[0])
    return single


def _parse_line(block: bytes, start: int, end: int, line: int) -> Numbered | None:
    """Decode one line. Returns None if it is blank."""
    if _BLANK.fullmatch(block, start, end):
        return None
    message: Request | ProtocolError
    try:
        message = decode_request(memoryview(block)[start:end])
    except ProtocolError as error:
        message = ProtocolError(f"line {line}: {error}")
    if isinstance(message, LineRun):
        message = replace(message, first_line=line)
    return Numbered(line, end - start, message)


def _merge(requests: Iterable[Numbered]) -> Iterator[Numbered]:
    """Merge adjacent runs of Stores of one binding, and of Loads of any, but not across a blank line: the line numbers
    would be wrong."""
    runs: list[Load | Store] = []
    for numbered in requests:
        message = numbered.request
        if runs and not (isinstance(message, LineRun) and _continues(message, runs[-1])):
            yield _join(runs)
            runs = []
        if isinstance(message, LineRun):
            runs.append(message)
        else:
            yield numbered
    if runs:
        yield _join(runs)


def _continues(run: LineRun, last: LineRun) -> bool:
    # Loads are divided by their bindings only after they are decoded: the runtime may send those of many in turns.
    is_alike = type(run) is type(last) and (isinstance(run, Load) or run.binding == last.binding)
    return is_alike and run.first_line == last.first_line + last.count


def _join(runs: list[Load | Store]) -> Numbered:
    run = runs[0]
    if len(runs) > 1:
        pieces = tuple(chain.from_iterable(run.pieces for run in runs))
        run = replace(run, count=sum(run.count for run in runs), pieces=pieces)
    return Numbered(run.first_line, run.size, run)


def _count_newlines(block: bytes) -> int:
    # bytes.replace jumps from newline to newline. It is three times as fast as bytes.count, which reads every byte.
    return len(block) - len(block.replace(b"\n", b""))
