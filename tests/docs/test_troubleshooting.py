"""docs/troubleshooting.md has every error that the connector raises, and every warning that it logs."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from connector.host import errors
from connector.host.logs import Event
from support.repository import REPOSITORY

PAGE: Final = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
SNAPSHOTS: Final = sorted((REPOSITORY / "tests" / "snapshots").glob("*.json"))
CODE: Final = re.compile(r"`([^`]+)`")
GAP: Final = "…"
# Reasons that Flow's UI shows beside a field. They are no errors.
REASONS: Final = {"constraints", "reasons"}
BY_ITS_CALLERS: Final = "table %s: %s: %s: %s"  # its second part is a text of its own
BASES: Final = {"ConnectorError"}  # never raised itself


def symptoms() -> list[str]:
    """Return the texts in the first column of all tables whose head says that they are texts."""
    found: list[str] = []
    is_text = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| the "):
            is_text = True
        elif not line.startswith("|"):
            is_text = False
        elif is_text:
            found += CODE.findall(cells[0])
    return found


SYMPTOMS: Final = symptoms()
PATTERNS: Final = [re.compile(".*?".join(map(re.escape, text.split(GAP))), re.DOTALL) for text in SYMPTOMS]


def texts(path: Path) -> Iterator[str]:
    """Yield the recorded texts of errors of one snapshot."""
    for name, lines in json.loads(path.read_text()).items():
        assert isinstance(lines, list), name
        yield from lines


def warnings() -> dict[str, str]:
    """Return the format of each warning that has no event, and the module that logs it."""
    return {
        text: str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "connector").rglob("*.py")
        for text in warnings_of(path.read_text())
    }


def warnings_of(source: str) -> Iterator[str]:
    """Yield the formats of warnings, and what failed in the background: `_warn` and `_Task` get it as an argument."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Name("_warn" | "_Task"), [_, ast.Constant(str(text)), *_]):
                yield text
            case ast.Call(ast.Attribute(ast.Name("log"), "warning"), [ast.Constant(text), *_]) if (
                text == BY_ITS_CALLERS
            ):
                pass
            case ast.Call(ast.Attribute(ast.Name("log"), "warning"), [ast.Constant(str(text)), *_], keywords):
                if not any(keyword.arg == "extra" for keyword in keywords):
                    yield re.sub(r"%[.\d]*[a-z]", GAP, text)


def is_on_page(text: str) -> bool:
    return any(pattern.search(text) for pattern in PATTERNS)


@pytest.mark.parametrize("path", [path for path in SNAPSHOTS if path.stem not in REASONS], ids=lambda path: path.stem)
def test_every_error_is_on_the_page(path: Path) -> None:
    assert [text for text in texts(path) if not is_on_page(text)] == []


def test_every_symptom_of_the_page_is_a_text_that_is_printed() -> None:
    printed = [text for path in SNAPSHOTS if path.stem not in REASONS for text in texts(path)]
    printed += warnings()
    unknown = [
        text for text, each in zip(SYMPTOMS, PATTERNS, strict=True) if not any(each.search(line) for line in printed)
    ]
    assert unknown == []


def test_every_warning_without_an_event_is_on_the_page() -> None:
    assert {text: module for text, module in warnings().items() if not is_on_page(text)} == {}


@pytest.mark.parametrize(
    "source", ['log.warning("the %s is late", name)', 'log.warning("the %.0f is late", n, exc_info=True)']
)
def test_a_warning_is_found_where_it_is_logged(source: str) -> None:
    assert [*warnings_of(source)] == ["the … is late"]
    assert not is_on_page("the … is late")


@pytest.mark.parametrize("kind", [kind for kind in vars(errors) if kind.endswith("Error") and kind not in BASES])
def test_every_kind_of_error_is_on_the_page(kind: str) -> None:
    assert inspect.isclass(getattr(errors, kind))
    assert f"| `{kind}` | " in PAGE


def test_every_event_of_a_warning_is_on_the_page() -> None:
    [section] = re.findall(r"^## Records of the log\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    operating = (REPOSITORY / "docs" / "operating.md").read_text()
    levels = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\w+) \| ", operating, re.MULTILINE))
    by_event = {event: level for events, level in levels.items() for event in CODE.findall(events)}
    assert by_event.keys() == {*Event}
    assert {event for event, level in by_event.items() if level == "warn"} == set(
        re.findall(r"^\| `(\w+)` \| ", section, re.M)
    )
