"""Every error text of the modules below is one that a test has seen raised, and that a snapshot keeps to be reviewed."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from connector import errors
from support.jars import REPOSITORY

ERRORS: Final = {name for name in vars(errors) if name.endswith("Error")} | {"ProtocolError", "Problem"}
MODULES: Final = [
    *sorted((REPOSITORY / "protocol").glob("*.py")),
    *sorted((REPOSITORY / "connector" / "config").glob("*.py")),
    *sorted((REPOSITORY / "connector" / "commands").glob("*.py")),
    *(
        REPOSITORY / "connector" / name
        for name in (
            *("apply.py", "backlog.py", "logs.py", "machine_share.py", "scratch.py", "staging.py", "transactions.py"),
            *("validate.py", "__main__.py", "iceberg/bound_table.py", "rows/lines.py", "rows/decoder.py"),
            *("spark/cluster.py", "spark/presence.py", "spark/claim_server.py"),
        )
    ),
]
ANYTHING: Final = r"[^\0]*?"


def recorded() -> str:
    snapshots = (REPOSITORY / "tests" / "snapshots").glob("*_errors.json")
    texts = (text for path in snapshots for text in json.loads(path.read_text()).values())
    return "\0".join("\n".join(lines) for lines in texts)


def pattern(text: ast.expr) -> str:
    match text:
        case ast.Constant(str(value)):
            return re.escape(value)
        case ast.JoinedStr(values):
            return "".join(map(pattern, values))
        case _:
            return ANYTHING


def raised(module: Path) -> Iterator[tuple[int, str]]:
    """Lines on which an error is made of a text of its own, and what the text is like."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Call(ast.Name(name), [*_, (ast.Constant() | ast.JoinedStr()) as text]) if name in ERRORS:
                yield node.lineno, pattern(text)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_text_of_a_module_is_in_a_snapshot(module: Path) -> None:
    texts = recorded()
    assert [(line, text) for line, text in raised(module) if not re.search(text, texts)] == []
