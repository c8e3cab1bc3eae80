"""Replaces secrets by `***` in texts.

Code that gets a secret, from the config or from a server, registers it here. Every text that leaves the process is
redacted here. So code that writes a text does not need to know which secrets it may contain.
"""

import json
import re
import threading
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

HIDDEN: Final = "***"
# Characters. A shorter secret is a part of many words, and hiding it there would reveal it. Passwords have to be longer
# anyway (NIST SP 800-63B).
SHORTEST: Final = 8
LONGEST_QUOTE: Final = 1000  # characters: Polaris lists all locations that it allows at the end of a long answer
DEEPEST: Final = 3  # a text is decoded so many times: errors quote errors that quote what was sent
MOST_OBTAINED: Final = 10_000  # a catalog may vend new credentials each time a table is loaded

# Line breaks, also in the form of JSON: texts quote private keys line by line.
_LINE_BREAK: Final = re.compile(r"\\n|[\r\n]+")
_LINE: Final = re.compile(r"[^\n]+")
# Parts of a secret that are secret by themselves.
_PARTS: Final = (
    re.compile(r"^[^:]*:(.+)$", re.DOTALL),  # id:secret
    re.compile(r"^\S+ (.+)$", re.DOTALL),  # Bearer token
    re.compile(r"//([^/\s]*)@"),  # http://user:password@proxy
    re.compile(r"//[^/:\s]*:([^/\s]*)@"),
    re.compile(r"\bsig=([^&\s]+)"),  # of a shared access signature
)
# Characters in the form of URLs, of XML, and of JSON and Python. A text is decoded with each of them.
_ESCAPES: Final = (
    re.compile(r"(?:%[0-9a-fA-F]{2})+"),
    re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|quot|amp|apos|lt|gt);"),
    re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\U000[0-9a-fA-F]{5}|\\x[0-9a-fA-F]{2}|\\[\"'/\\bfnrt]"),
)
_FOR_URLS: Final = str.maketrans("+/", "-_")  # the other alphabet of base64
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}  # after a backslash
# JSON web tokens: libraries make some to sign in, which are not registered. The last part may be cut off.
_JWT: Final = re.compile(r"\beyJ[-\w]{8,}\.eyJ[-\w]+(\.[-\w]*)?")

_Forms: TypeAlias = dict[str, set[str]]  # by their first SHORTEST characters


class Redaction:
    """Known secrets, in all forms in which servers and clients quote them."""

    def __init__(self, most_obtained: int = MOST_OBTAINED) -> None:
        self._most_obtained = most_obtained
        self._lock = threading.Lock()
        self._kept: _Forms = {}
        self._recent: _Forms = {}
        self._earlier: _Forms = {}
        self._obtained = 0

    def hide(self, secret: str) -> None:
        """Hide a secret from now on, until the process ends."""
        with self._lock:
            _add(self._kept, secret)

    def hide_obtained(self, secret: str) -> None:
        """Hide one of many secrets that expire. It is forgotten after many others have been registered."""
        with self._lock:
            if len(secret) < SHORTEST or secret in self._recent.get(secret[:SHORTEST], ()):
                return
            if self._obtained == self._most_obtained:
                self._earlier, self._recent, self._obtained = self._recent, {}, 0
            _add(self._recent, secret)
            self._obtained += 1

    def redact(self, text: str) -> str:
        """Return the text with each secret replaced."""
        with self._lock:
            found = sorted(self._find_in_any_form(text))
        pieces, last = list[str](), 0
        for start, end in found:
            if start >= last:
                pieces += [text[last:start], HIDDEN]
            last = max(last, end)
        return _JWT.sub(HIDDEN, "".join([*pieces, text[last:]]))

    def _find_in_any_form(self, text: str, depth: int = DEEPEST) -> Iterator[tuple[int, int]]:
        """Yield where secrets begin and end, as they are, and as escapes stand for them."""
        yield from self._find(text)
        # Only the lines with escapes are decoded: outputs may have megabytes.
        for line in _LINE.finditer(text) if depth else ():
            for escape in _ESCAPES:
                if escape.search(line[0]):
                    decoded, places = _decode(line[0], escape)
                    for start, end in self._find_in_any_form(decoded, depth - 1):
                        yield line.start() + places[start], line.start() + places[end]

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where secrets begin and end, from left to right."""
        last = 0
        for start in self._find_starts(text):
            if start >= last and (length := self._longest(text, start)):
                last = start + length
                yield start, last

    def _find_starts(self, text: str) -> list[int]:
        """Return the positions of the first characters of secrets. Outputs may have megabytes, so this is one loop."""
        kept, recent, earlier = self._kept, self._recent, self._earlier
        return [
            position
            for position in range(len(text) - SHORTEST + 1)
            if (start := text[position : position + SHORTEST]) in kept or start in recent or start in earlier
        ]

    def _longest(self, text: str, position: int) -> int:
        """Return how many characters from this position on are secret: the longest form counts, since others may be its
        beginning."""
        start = text[position : position + SHORTEST]
        known = (self._kept, self._recent, self._earlier)
        fitting = (form for forms in known for form in forms.get(start, ()) if text.startswith(form, position))
        return max(map(len, fitting), default=0)


def _add(forms: _Forms, secret: str) -> None:
    for form in _forms_of(secret):
        forms.setdefault(form[:SHORTEST], set()).add(form)


def _forms_of(secret: str) -> Iterator[str]:
    """Yield what is looked for in texts, and in what their escapes stand for."""
    parts = {secret, *_LINE_BREAK.split(secret)}
    parts |= {part for pattern in _PARTS for part in pattern.findall(secret)}
    for plain in {each for part in parts for each in (part.strip(), unquote(part.strip()))}:
        if len(plain) >= SHORTEST:
            in_base64 = b2a_base64(plain.encode(errors="replace"), newline=False).decode().rstrip("=")
            yield from {plain, plain.replace(" ", "+"), in_base64, in_base64.translate(_FOR_URLS)}


def _decode(text: str, escape: re.Pattern[str]) -> tuple[str, list[int]]:
    """Return the text with what its escapes stand for, and where in the text each character of it begins. The last
    place is the end of the text."""
    pieces, places, last = list[str](), list[int](), 0
    for found in escape.finditer(text):
        pieces.append(text[last : found.start()])
        places += range(last, found.start())
        last = found.start()
        for character, length in _characters_of(found[0]):
            pieces.append(character)
            places.append(last)
            last += length
    return "".join([*pieces, text[last:]]), [*places, *range(last, len(text) + 1)]


def _characters_of(escape: str) -> Iterator[tuple[str, int]]:
    """Yield the characters that an escape stands for, each with its length in the escape."""
    if escape[0] == "%":
        for character in unquote_to_bytes(escape).decode(errors="surrogateescape"):
            yield character, 3 * len(character.encode(errors="surrogateescape"))
    elif escape[0] == "&":
        from html import unescape  # `spec` answers without it

        yield unescape(escape) or "\0", len(escape)  # it is empty for some control characters
    elif len(escape) == 2:
        yield _LETTERS.get(escape[1], escape[1]), 2
    elif escape[1] == "u":
        for character in json.loads(f'"{escape}"'):
            yield character, 6 * (1 + (character > "\uffff"))
    else:
        yield chr(int(escape[2:], 16)), len(escape)


_KNOWN: Final = Redaction()

hide: Final = _KNOWN.hide
hide_obtained: Final = _KNOWN.hide_obtained
redact: Final = _KNOWN.redact


def hide_proxies(environment: Mapping[str, str]) -> None:
    """Hide the users and the passwords of the proxies that the environment names."""
    for name, value in environment.items():
        user, at, _ = value.rpartition("@")
        if at and name.lower().endswith("_proxy"):
            hide(user.partition("//")[2] or user)


def redact_and_shorten(text: str) -> str:
    """Return a text of another program for a sentence: redacted, in one line, without a full stop, and shortened if it
    is very long. It is redacted before it is shortened, since half of a secret would not be recognised."""
    words = " ".join(redact(text).split()).rstrip(".")
    return words if len(words) <= LONGEST_QUOTE else f"{words[:LONGEST_QUOTE].rstrip()} …"
