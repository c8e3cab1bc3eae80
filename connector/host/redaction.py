"""Replaces secrets by `***` in texts.

Code that gets a secret, from the config or from a server, registers it here. Every text that leaves the process is
redacted here. So code that writes a text does not need to know which secrets it may contain.
"""

import json
import re
import threading
from binascii import b2a_base64
from collections.abc import Iterator
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus, unquote

HIDDEN: Final = "***"
# Characters. A shorter secret is a part of many words, and hiding it there would reveal it. Passwords have to be longer
# anyway (NIST SP 800-63B).
SHORTEST: Final = 8
LONGEST_QUOTE: Final = 1000  # characters: Polaris lists all locations that it allows at the end of a long answer
MOST_OBTAINED: Final = 10_000  # a catalog may vend new credentials each time a table is loaded

# Line breaks, also in the form of JSON: texts quote private keys line by line.
_LINE_BREAK: Final = re.compile(r"\\n|[\r\n]+")
# Parts of a secret that are secret by themselves.
_PARTS: Final = (
    re.compile(r"^[^:]*:(.+)$", re.DOTALL),  # id:secret
    re.compile(r"^\S+ (.+)$", re.DOTALL),  # Bearer token
    re.compile(r"//([^/\s]*)@"),  # http://user:password@proxy
    re.compile(r"//[^/:\s]*:([^/\s]*)@"),
    re.compile(r"\bsig=([^&\s]+)"),  # of a shared access signature
)
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
            pieces, end = [], 0
            for position in self._find_starts(text):
                if position >= end and (length := self._longest(text, position)):
                    pieces += [text[end:position], HIDDEN]
                    end = position + length
        return _JWT.sub(HIDDEN, "".join([*pieces, text[end:]]))

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
    parts = {secret, *_LINE_BREAK.split(secret)}
    parts |= {part for pattern in _PARTS for part in pattern.findall(secret)}
    for plain in {each for part in parts for each in (part.strip(), unquote(part.strip()))}:
        if len(plain) >= SHORTEST:
            encoded = plain.encode(errors="replace")
            yield from {
                plain,
                quote(encoded, safe=""),
                quote_plus(encoded),
                json.dumps(plain)[1:-1],
                repr(plain)[1:-1],
                b2a_base64(encoded, newline=False).decode().rstrip("="),
            }


_KNOWN: Final = Redaction()

hide: Final = _KNOWN.hide
hide_obtained: Final = _KNOWN.hide_obtained
redact: Final = _KNOWN.redact


def redact_and_shorten(text: str) -> str:
    """Return a text of another program for a sentence: redacted, in one line, without a full stop, and shortened if it
    is very long. It is redacted before it is shortened, since half of a secret would not be recognised."""
    words = " ".join(redact(text).split()).rstrip(".")
    return words if len(words) <= LONGEST_QUOTE else f"{words[:LONGEST_QUOTE].rstrip()} …"
