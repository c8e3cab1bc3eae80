"""The syntax of `partition_by` and `sort_by`: fields with transforms, as in Spark's SQL."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, TypeVar

import msgspec

IDENTITY: Final = "identity"
VOID: Final = "void"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
TRANSFORMS_WITH_WIDTH: Final = ("bucket", "truncate")
# By a name in lower case: the transform, as Iceberg's specification names it. Spark knows these names, too.
TRANSFORMS: Final[Mapping[str, str]] = {
    IDENTITY: IDENTITY,
    **{name: name for name in TRANSFORMS_WITH_WIDTH},
    **{name: name for name in TIME_TRANSFORMS},
    **{f"{name}s": name for name in TIME_TRANSFORMS},
    "date": "day",
    "date_hour": "hour",
    VOID: VOID,
}
SHOWN_TRANSFORMS: Final = (IDENTITY, *TRANSFORMS_WITH_WIDTH, *TIME_TRANSFORMS, VOID)
DEMAND: Final = "must be fields with commas between them, with or without a transform"
SHOWN_CHARACTERS: Final = 60  # of a word, in an error

# Compiled when they are first used: a spec request uses none of them.
_TOKEN: Final = r"\s*(?:`((?:[^`]|``)*)`|([(),])|([^\s`(),]+))"
_PLAIN_NAME: Final = r"[^\s`(),]+"
_NUMBER: Final = r"-?[0-9]{1,18}"
_FULL_TRANSFORM: Final = r"([a-z]+)(?:\[([0-9]{1,18})\])?"


class Term(msgspec.Struct, frozen=True):
    """A field, or a field with a transform."""

    transform: str  # as Iceberg's specification names it, without its width
    name: str  # a field's name, or the name of its column
    width: int | None = None  # of bucket and truncate

    @property
    def full_transform(self) -> str:
        """The transform as the table's metadata has it, such as bucket[16]."""
        return self.transform if self.width is None else f"{self.transform}[{self.width}]"

    def __str__(self) -> str:
        """The term as a config may have it."""
        field = _quote(self.name)
        if self.transform == IDENTITY:
            return field
        return f"{self.transform}({field})" if self.width is None else f"{self.transform}({self.width}, {field})"


class SortTerm(msgspec.Struct, frozen=True):
    """A term by which rows are sorted, and its direction."""

    term: Term
    is_descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        """The term as a config may have it, with every word."""
        direction = "desc" if self.is_descending else "asc"
        return f"{self.term} {direction} nulls {'first' if self.nulls_first else 'last'}"


def parse_partition_by(text: str) -> tuple[Term, ...]:
    """Parse the terms of a partition spec. Raises ValueError, which says what is wrong and where."""
    parser = _Parser(text, "day(flow_published_at), bucket(16, id)")
    return parser.parse_list(parser.parse_term)


def parse_partition_fields(fields: Sequence[Mapping[str, str]]) -> tuple[Term, ...]:
    """Parse a partition spec as the public connector has it: objects with a `field` and its full `transform`.

    Raises ValueError, which says what is wrong with which of them.
    """
    return tuple(_parse_partition_field(index, **field) for index, field in enumerate(fields))


def _parse_partition_field(index: int, field: str, transform: str = IDENTITY) -> Term:
    found = re.fullmatch(_FULL_TRANSFORM, transform.lower())
    name, width = found.groups() if found else (transform, None)
    if name not in SHOWN_TRANSFORMS or (width is not None) != (name in TRANSFORMS_WITH_WIDTH):
        raise ValueError(
            "must be fields with transforms: identity, bucket[N], truncate[N], year, month, day, hour or void. The "
            f"transform of element {index} is {transform[:SHOWN_CHARACTERS]!r}"
        )
    return Term(name, field, None if width is None else int(width))


def parse_sort_by(text: str) -> tuple[SortTerm, ...]:
    """Parse the terms of a sort order. Raises ValueError, which says what is wrong and where."""
    parser = _Parser(text, "customer_id, ordered_at desc nulls last")
    return parser.parse_list(parser.parse_sort_term)


def _quote(name: str) -> str:
    if re.fullmatch(_PLAIN_NAME, name) and not re.fullmatch(_NUMBER, name):
        return name
    return f"`{name.replace('`', '``')}`"


class _Token(msgspec.Struct, frozen=True):
    text: str
    position: int  # of its first character, from 1
    is_quoted: bool
    is_sign: bool  # a parenthesis or a comma

    @property
    def is_number(self) -> bool:
        return not self.is_quoted and bool(re.fullmatch(_NUMBER, self.text))


_Parsed = TypeVar("_Parsed")


class _Parser:
    def __init__(self, text: str, example: str) -> None:
        self._example = example
        self._end = len(text) + 1
        self._tokens = self._split(text)
        self._index = 0

    def parse_list(self, parse_element: Callable[[], _Parsed]) -> tuple[_Parsed, ...]:
        if not self._tokens:
            return ()
        elements = [parse_element()]
        while self._index < len(self._tokens):
            self._expect(",", "a comma")
            elements.append(parse_element())
        return tuple(elements)

    def parse_term(self) -> Term:
        name = self._take_name()
        if name.is_quoted or not self._skip("("):
            return Term(IDENTITY, name.text)
        transform = TRANSFORMS.get(name.text.lower())
        if transform is None:
            self._fail(
                f"{name.text[:SHOWN_CHARACTERS]!r} is not a transform. The transforms are "
                f"{', '.join(SHOWN_TRANSFORMS)}",
                name.position,
            )
        arguments = [self._take_name()]
        while self._skip(","):
            arguments.append(self._take_name())
        self._expect(")", "a closing parenthesis")
        return self._apply(transform, name, arguments)

    def parse_sort_term(self) -> SortTerm:
        term = self.parse_term()
        is_descending = self._skip("desc")
        if not is_descending:
            self._skip("asc")
        nulls_first = not is_descending
        if self._skip("nulls"):
            nulls_first = self._skip("first")
            if not nulls_first:
                self._expect("last", "`first` or `last`")
        return SortTerm(term, is_descending, nulls_first)

    def _apply(self, transform: str, name: _Token, arguments: list[_Token]) -> Term:
        if transform not in TRANSFORMS_WITH_WIDTH:
            if len(arguments) != 1:
                self._fail(f"{transform} has one argument, a field", name.position)
            return Term(transform, arguments[0].text)
        numbers = [each for each in arguments if each.is_number]
        fields = [each for each in arguments if not each.is_number]
        if len(numbers) != 1 or len(fields) != 1:
            self._fail(
                f"{transform} has two arguments, a whole number and a field. If a field's name is a number, put it in "
                "backticks",
                name.position,
            )
        return Term(transform, fields[0].text, int(numbers[0].text))

    def _split(self, text: str) -> list[_Token]:
        pattern, tokens = re.compile(_TOKEN), []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = pattern.match(text, position)
            if match is None:
                self._fail("the closing backtick is missing", text.index("`", position) + 1)
            quoted, sign, word = match.groups()
            name = quoted.replace("``", "`") if quoted is not None else sign or word
            tokens.append(_Token(name, match.start(match.lastindex or 0) + 1, quoted is not None, sign is not None))
            position = match.end()
        return tokens

    def _take_name(self) -> _Token:
        token = self._next
        if token is None or token.is_sign or not token.text:
            self._fail("a field is missing", token.position if token else self._end)
        self._index += 1
        return token

    def _skip(self, word: str) -> bool:
        """Skip a sign or a word, if it is the next one."""
        token = self._next
        is_next = token is not None and not token.is_quoted and token.text.lower() == word
        self._index += is_next
        return is_next

    def _expect(self, word: str, description: str) -> None:
        if not self._skip(word):
            self._fail(f"{description} is missing", self._next.position if self._next else self._end)

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _fail(self, wrong: str, position: int) -> NoReturn:
        raise ValueError(f"{DEMAND}, such as {self._example}. At character {position}: {wrong}")
