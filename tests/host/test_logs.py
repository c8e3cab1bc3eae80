"""What reaches stderr, in which form."""

import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from connector.host import logs
from connector.host.errors import UserError
from connector.host.logs import Event
from connector.host.redaction import HIDDEN, hide
from support.repository import REPOSITORY
from support.snapshots import check_text

log = logging.getLogger("connector.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "connector", "py.warnings")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    hook, unraisable_hook = threading.excepthook, sys.unraisablehook
    yield
    logging.captureWarnings(False)
    threading.excepthook, sys.unraisablehook = hook, unraisable_hook
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def configure(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name in ("LOG_FORMAT", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    logs.configure()


def test_json_records_have_what_the_runtime_parses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, LOG_FORMAT="json")
    log.warning("a %s", "warning", extra=logs.fields(Event.RETRIED, attempt=3))
    record = json.loads(capsys.readouterr().err)
    assert [*record] == ["ts", "level", "msg", "event", "attempt"]
    assert (record["level"], record["msg"], record["event"], record["attempt"]) == ("warn", "a warning", "retried", 3)
    assert record["ts"].startswith("20")


def test_the_records_that_flow_shows_as_the_status_are_marked_as_it_defines() -> None:
    marked = {event for event in Event if logs.fields(event)[logs.FIELDS].get("eventType") == "connectorStatus"}
    assert marked == {Event.OPENED, Event.RECEIVING, Event.LOADING, Event.STAGED, Event.RUNNING}


def test_every_event_is_documented() -> None:
    documented = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| \w+ \|", (REPOSITORY / "docs" / "operating.md").read_text(), re.M
    )
    assert [event.strip("`") for row in documented for event in row.split(", ")] == [*Event]


def test_text_is_one_readable_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    configure(monkeypatch)
    log.info("three rows", extra=logs.fields(Event.STAGED, rows=3))
    [line] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d info  three rows", line), "a log file has many nights"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"),
        ("a\rb\x7f\x9b\x00", "a\\u000db\\u007f\\u009b\\u0000"),
        ("a\u2028b\u202egnp.\u2066", "a\\u2028b\\u202egnp.\\u2066"),
        ("größe\t名\xa0ñ", "größe\t名\xa0ñ"),
    ],
)
def test_a_text_of_others_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    configure(monkeypatch)
    log.info("table %s", text)
    assert capsys.readouterr().err.partition(" info  ")[2] == f"table {shown}\n"
    assert json.loads(f'"{logs.show_controls(text)}"'.replace("\t", "\\t")) == text


def test_a_text_of_others_does_not_look_like_a_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, LOG_LEVEL="debug")
    forged = "no\n2026-01-01 00:00:00 error forged"
    log.error("refused: %s", forged, exc_info=ValueError(forged))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "forged" in line] == 2 * ["    2026-01-01 00:00:00 error forged"]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        *((level, ["d", "i", "w", "e"]) for level in ("debug", "trace", "DEBUG")),
        *((level, ["i", "w", "e"]) for level in ("info", "")),
        *((level, ["w", "e"]) for level in ("warn", "warning")),
        ("error", ["e"]),
    ],
)
def test_the_level_is_honoured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, shown: list[str]
) -> None:
    configure(monkeypatch, LOG_LEVEL=level)
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert [line[-1] for line in capsys.readouterr().err.splitlines()] == shown


@pytest.mark.parametrize(("name", "value"), [("LOG_FORMAT", "xml"), ("LOG_LEVEL", "loud")])
def test_another_value_is_an_error_that_names_the_choices(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with pytest.raises(UserError, match=f"{name} is '{value}'; it may be"):
        configure(monkeypatch, **{name: value})


def test_only_we_and_warnings_are_heard_so_that_the_last_record_is_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, LOG_LEVEL="debug")
    log.error("ours")
    logging.getLogger("py4j.clientserver").error("a library")
    logging.error("a library")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("about something", stacklevel=1)
    told = capsys.readouterr().err
    assert "ours" in told
    assert "about something" in told
    assert "a library" not in told


def test_a_library_is_not_heard_and_our_records_come_once_whatever_it_does_with_the_root_logger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    root.handlers.clear()  # Python prints the records of loggers that have no handler anywhere
    configure(monkeypatch)
    logging.getLogger("library").error("of a library")
    root.addHandler(logging.StreamHandler(sys.stderr))
    log.error("ours")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("ours")


def test_what_ends_a_thread_is_told_only_to_those_who_look_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, LOG_LEVEL="info")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    assert capsys.readouterr().err == ""


def test_what_fails_while_it_is_cleaned_up_is_a_record_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("planted-in-a-destructor")

    hide("planted-in-a-destructor")
    configure(monkeypatch, LOG_LEVEL="debug")
    Broken()
    told = capsys.readouterr().err
    assert "ValueError: ***" in told
    assert "planted" not in told


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_record_has_a_secret_in_its_message_its_fields_or_the_errors_behind_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    secret = 'planted "in" records\\'
    hide(secret)
    configure(monkeypatch, LOG_FORMAT=log_format, LOG_LEVEL="debug")
    try:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise UserError(f"refused: {secret}") from error
    except UserError as error:
        log.error("%s", error, exc_info=True, extra={logs.FIELDS: {"answer": secret, "rows": 3}})
    told = capsys.readouterr().err
    assert "planted" not in told
    assert told.count("***") == (4 if log_format == "json" else 3)
    if log_format == "json":
        assert json.loads(told)["rows"] == 3


def errors_in_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str) -> list[str]:
    """The messages of the records of an error."""
    configure(monkeypatch, LOG_FORMAT="json", LOG_LEVEL="error")
    log.error("%s", text)
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(*record, record["level"]) for record in records} == {("ts", "level", "msg", "error")}
    return [record["msg"] for record in records]


@pytest.mark.parametrize(
    ("name", "problem", "problems"),
    [("many problems", "table shop.größe{}: has no key.", 300), ("one long problem", f"{{}} ä{3000 * 'ö'} end", 1)],
    ids=["many problems", "one long problem"],
)
def test_an_error_that_is_too_long_for_flow_is_told_line_by_line_and_its_last_record_is_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, problem: str, problems: int
) -> None:
    lines = [problem.format(number) for number in range(problems)]
    *records, last = errors_in_json(monkeypatch, capsys, "\n".join(lines))
    assert records == lines
    assert logs.LONGEST_ERROR - 100 < len(last.encode()) < logs.LONGEST_ERROR + 100
    *shown, notice = last.split("\n")
    assert all(a == b or " … " in a for a, b in zip(shown, lines, strict=False))
    check_text("long_errors", name, notice)


def test_an_error_that_flow_shows_as_a_whole_is_one_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(["x" * 99] * 30)
    assert errors_in_json(monkeypatch, capsys, text) == [text]


def test_a_long_warning_is_one_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Flow counts records, and shows none of them in place of the error that ends the process."""
    configure(monkeypatch, LOG_FORMAT="json")
    log.warning("%s", "\n".join(["x" * 99] * 100))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_part_of_a_long_error_has_a_part_of_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of one would not be recognised."""
    hide(secret := "planted\nin two lines")
    record, last = errors_in_json(monkeypatch, capsys, f"{'x' * (logs.LONGEST_ERROR // 2 - 4)}{secret}{'y' * 2000}")
    assert HIDDEN in record
    assert "planted" not in record + last
    assert "lines\n" not in record + last


def test_a_person_gets_a_long_error_as_one_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch)
    log.error("%s", "\n".join(map(str, range(2000))))
    assert len(capsys.readouterr().err.splitlines()) == 2000


def test_a_long_line_that_follows_a_short_one_is_told_in_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, last = errors_in_json(monkeypatch, capsys, f"Rows wait:\ntable shop.größe: {'表' * 1000} end")
    first, second, _ = last.split("\n")
    assert (first, second[:17], second[-6:]) == ("Rows wait:", "table shop.größe:", "表表 end")
    assert len(last.encode()) < logs.LONGEST_ERROR + 100
