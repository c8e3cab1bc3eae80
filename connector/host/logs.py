"""Log records on stderr, without secrets: JSON lines for the runtime, readable lines for a person."""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from connector.host.errors import UserError
from connector.host.redaction import redact

log = logging.getLogger(__name__)

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
MOST_NAMES: Final = 5  # in one record
# Also line breaks of Unicode, and what reverses the direction of a text.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Bytes in UTF-8. Flow shows 4,096 of the last record at most, with words of its own before it. With older images of
# Flow, a longer record is lost: users see "h2 protocol error" in its place.
LONGEST_ERROR: Final = 3_000
SHORTEST_PART: Final = 100  # of a line, in bytes
FIELDS: Final = "fields"  # the attribute of a record that holds its fields


class Event(StrEnum):
    """What happened, for programs that read logs. docs/operating.md lists each event with its fields."""

    OPENING = "opening"
    OPENED = "opened"
    RECEIVING = "receiving"
    LOADING = "loading"
    LOADED = "loaded"
    UNSTORED = "unstored"
    STAGED = "staged"
    COMMITTED = "committed"
    RECOVERED = "recovered"
    RUNNING = "running"
    HELD = "held"
    RETRIED = "retried"
    WAITING = "waiting"
    UNDELIVERED = "undelivered"
    CLAMPED = "clamped"
    NULLED = "nulled"
    REJECTED = "rejected"
    OUTDATED = "outdated"
    COMPACTED = "compacted"
    EXPIRED = "expired"
    COLLECTED = "collected"


# What a task does now. Flow's UI shows the newest record with this field.
STATUS: Final = {"eventType": "connectorStatus"}
STATUSES: Final = frozenset({Event.OPENED, Event.LOADING, Event.RECEIVING, Event.STAGED, Event.RUNNING})


def fields(event: Event, **values: object) -> dict[str, Any]:
    """Return the `extra` of a record: `log.info("…", extra=fields(Event.STAGED, rows=3))`."""
    return {FIELDS: {"event": event, **(STATUS if event in STATUSES else {}), **values}}


def name_some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def format_bytes(size: float) -> str:
    """Return a number of bytes with the fitting unit."""
    number, units = float(size), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while number >= 1000 and (larger := next(units, None)):
        number, unit = number / 1000, larger
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"


def show_controls(text: str) -> str:
    """Return a text with the control characters in the form of JSON, but line breaks and tabs as they are. Texts of
    others must not control the terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def configure() -> None:
    """Follow LOG_FORMAT (json or text) and LOG_LEVEL (debug, info, warn, error)."""
    log_format = os.environ.get("LOG_FORMAT") or "text"
    if log_format not in FORMATTERS:
        raise UserError(f"LOG_FORMAT is {log_format!r}; it may be json or text.")
    level = (os.environ.get("LOG_LEVEL") or "info").lower().replace("warning", "warn").replace("trace", "debug")
    if level not in LEVELS:
        raise UserError(f"LOG_LEVEL is {level!r}; it may be one of {', '.join(LEVELS)}.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[log_format]())
    logging.captureWarnings(True)
    # Libraries also log the failures that become our errors; py4j and SQLAlchemy do so at length, and later. Flow shows
    # the last record on stderr to users, so this must be our record.
    logging.getLogger().addHandler(logging.NullHandler())
    for name, threshold in (("connector", LEVELS[level]), ("py.warnings", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(threshold)
        logger.propagate = False
    threading.excepthook = _log_thread_error
    sys.unraisablehook = _log_unraisable


def _log_thread_error(error: threading.ExceptHookArgs) -> None:
    """Log the traceback. The error itself is raised where the result of the thread is awaited."""
    log.debug("thread %s", error.thread and error.thread.name, exc_info=error.exc_value)


def _log_unraisable(error: "sys.UnraisableHookArgs") -> None:
    """Log the traceback. Python would print it without a format and with all secrets in it."""
    log.debug("an object could not be cleaned up", exc_info=error.exc_value)


class JsonFormatter(logging.Formatter):
    """Formats records as Flow's runtime parses them: `{"ts": …, "level": …, "msg": …, …fields}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON without secrets, or several if it is an error that is too long for Flow."""
        message, is_error = _message(record, self), record.levelno >= logging.ERROR
        return "\n".join(
            json.dumps(
                {
                    "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
                    "level": _level(record),
                    "msg": part,
                    **{name: _redact(value) for name, value in getattr(record, FIELDS, {}).items()},
                }
            )
            for part in (_split_error(message) if is_error else [message])
        )


class TextFormatter(logging.Formatter):
    """Formats records as readable lines, without fields: the message says the same."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the local date and time, the level and the message without secrets."""
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        # Lines within a message are indented: texts of others must not look like records.
        message = show_controls(_message(record, self)).replace("\n", "\n    ")
        return f"{moment} {_level(record):5} {message}"


def _level(record: logging.LogRecord) -> str:
    return next((name for name, level in reversed(LEVELS.items()) if record.levelno >= level), "debug")


def _message(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    message = record.getMessage()
    return redact(f"{message}\n{formatter.formatException(record.exc_info)}" if record.exc_info else message)


def _split_error(text: str) -> list[str]:
    """Return the text, or if it is too long for Flow, its lines and then a part that fits: the first lines, and both
    ends of the next one."""
    if _measure(text) <= LONGEST_ERROR:
        return [text]
    lines = [line for line in text.split("\n") if line.strip()]
    shown, room = list[str](), LONGEST_ERROR
    for line in lines:
        shown.append(_cut(line, room))
        if (room := room - _measure(line) - 1) < SHORTEST_PART:
            break
    notice = f"… This is shortened. The log has all {len(lines)} line(s) of it before this."
    return [*lines, "\n".join([*shown, notice])]


def _measure(text: str) -> int:
    return len(text.encode(errors="replace"))


def _cut(line: str, size: int) -> str:
    """Return the line, or both of its ends if it has more bytes."""
    encoded, half = line.encode(errors="replace"), size // 2
    if len(encoded) <= size:
        return line
    return f"{encoded[:half].decode(errors='ignore')} … {encoded[-half:].decode(errors='ignore')}"


def _redact(value: object) -> object:
    return value if isinstance(value, int | float | None) else redact(str(value))


FORMATTERS: Final[dict[str, type[logging.Formatter]]] = {"json": JsonFormatter, "text": TextFormatter}
