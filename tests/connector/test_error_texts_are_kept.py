"""Every error text of the connector and of the protocol is one that a test has seen raised, and that a snapshot keeps
to be reviewed."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import pytest

from support.repository import REPOSITORY

MODULES: Final = sorted(path for package in ("connector", "protocol") for path in (REPOSITORY / package).rglob("*.py"))
ANYTHING: Final = ".*?"
BETWEEN: Final = "\n\0\n"  # texts of the snapshots: no pattern matches it
PLACEHOLDER: Final = re.compile(r"\{\w*(?:![rs])?\}")  # of a template

# What nobody reads of an error.
UNREAD: Final = {
    "AssertionError": "our own fault, whatever it says",
    "NoSuchTableError": "an answer to PyIceberg's callers: there is none",
    "NoSuchIcebergTableError": "told by the callers in words of their own",
}
UNREAD_TEXTS: Final = {
    "would be clamped": "a column that is to be converted is set aside, whatever keeps it from being converted",
}
# Where sentences are about something else than errors. Those that an error is made of are looked for there too.
OTHER_SENTENCES: Final = {
    "connector/cli/arguments.py": "the help of the command line",
    "connector/cli/commands/check_command.py": "what has been looked at, and that it is well",
    "connector/cli/commands/demo_command.py": "what there is, and what was done",
    "connector/cli/commands/fence_command.py": "what there is, and what was done",
    "connector/cli/commands/inspect_command.py": "what there is",
    "connector/cli/maintain_arguments.py": "the help of the command line",
    "connector/cli/texts/maintain_texts.py": "what was done",
    "connector/cli/commands/plan_command.py": "what apply would do",
    "connector/cli/flow/projections.py": "descriptions of projections",
    "connector/cli/texts/table_lines.py": "how a table is opened",
    "connector/cli/texts/table_texts.py": "what there is",
    "connector/cli/commands/version_command.py": "the versions",
    "connector/config/catalog_properties.py": "descriptions in the config's schema",
    "connector/evolution/rejected_table.py": "descriptions of columns",
    "connector/evolution/table_change.py": "descriptions of actions",
    "connector/evolution/type_changes.py": "what the ways are in which a type changes",
    "connector/iceberg/commits/reset.py": "what a reset will do",
    "connector/metrics/definitions.py": "what the metrics mean",
    "connector/spark/jvm/cluster.py": "where tasks run",
}
LOGGING: Final = {"debug", "info", "warning", "error", "exception"}


@cache
def recorded() -> str:
    """Return all texts, each on its own line: of errors, and of constraints, whose reasons a user reads alike."""
    files = (json.loads(path.read_text()) for path in (REPOSITORY / "tests" / "snapshots").glob("*.json"))
    return BETWEEN.join(sorted({text for file in files for text in texts_of(file)}))


def texts_of(recorded: object) -> Iterator[str]:
    match recorded:
        case str(text):
            yield text
        case list(items):
            for item in items:
                yield from texts_of(item)
        case dict(members):
            yield from texts_of([*members.values()])


class Texts(ast.NodeVisitor):
    """The literals of a module that are texts of errors: what an error is made of, and every sentence or demand that
    may become part of one."""

    def __init__(self, has_other_sentences: bool) -> None:
        self.found: list[tuple[int, str]] = []
        self._is_one: Callable[[str], bool] = (lambda _: False) if has_other_sentences else is_sentence

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(name) | ast.Attribute(attr=name) if name in LOGGING | UNREAD.keys() | {"Setting"}:
                pass  # a setting's texts are in the config's schema
            case ast.Name(name) if name.endswith("Error") or name == "Problem":
                for argument in node.args:
                    if is_text(argument):
                        self._add(argument)
                    else:
                        self.visit(argument)
            case _:
                self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        match node.target:
            case ast.Name("title" | "description"):  # in the config's schema
                pass
            case _:
                self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if is_text(node) and self._is_one(pattern(node)):
            self._add(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self._is_one(pattern(node)):
            self._add(node)

    def _add(self, node: ast.expr) -> None:
        self.found.append((node.lineno, pattern(node)))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_sentence(text: str) -> bool:
    words = text.replace(ANYTHING, "…").replace("\\", "").strip()
    is_long = len(words.split()) >= 3
    return is_long and (words.startswith(("must ", "is ")) or words.endswith(".") or ". " in words or "; " in words)


def pattern(text: ast.expr) -> str:
    match text:
        case ast.Constant(str(value)):
            return ANYTHING.join(map(re.escape, PLACEHOLDER.split(value)))
        case ast.JoinedStr(values):
            return "".join(map(pattern, values))
        case _:
            return ANYTHING


def is_recorded(text: str) -> bool:
    """Whether the pattern of a text is found in a snapshot. It is found faster without its ends that match anything."""
    return bool(re.search(re.sub(r"^(?:\.\*\?)+|(?:\.\*\?)+$", "", text), recorded()))


def unseen(source: str, *, has_other_sentences: bool = False) -> list[tuple[int, str]]:
    """Lines and patterns of the texts that are in no snapshot."""
    texts = Texts(has_other_sentences)
    texts.visit(ast.parse(source))
    return [
        (line, text)
        for line, text in texts.found
        if text.replace("\\", "") not in UNREAD_TEXTS and not is_recorded(text)
    ]


@pytest.mark.parametrize("module", [str(path.relative_to(REPOSITORY)) for path in MODULES])
def test_every_text_of_a_module_is_in_a_snapshot(module: str) -> None:
    assert unseen((REPOSITORY / module).read_text(), has_other_sentences=module in OTHER_SENTENCES) == []


@pytest.mark.parametrize(
    "source",
    [
        'raise UserError(f"{place} is nowhere")',
        'raise UserError(explained("Go away. Come again."))',
        'REFUSALS = {"NoSuchThing": "there is no {thing} here. Make one."}',
        'kind, demand = ValueError, "must be found by the walk"',
    ],
)
def test_a_text_that_nobody_has_seen_is_found_wherever_it_is(source: str) -> None:
    assert len(unseen(source)) == 1


@pytest.mark.parametrize("exempted", [*OTHER_SENTENCES])
def test_what_is_exempted_is_still_there(exempted: str) -> None:
    assert (REPOSITORY / exempted).is_file()
