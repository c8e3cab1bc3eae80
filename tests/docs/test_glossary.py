"""A module or a public class is named with words of the glossary."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

GLOSSARY: Final = REPOSITORY / "docs" / "glossary.md"
ORDINARY: Final = "\n## Other words in names\n"
MODULES: Final = sorted(path for package in ("connector", "protocol") for path in (REPOSITORY / package).rglob("*.py"))
TERM: Final = re.compile(r"^\| ([^|]+) \| ", re.MULTILINE)
GROUP: Final = re.compile(r"\*\*: ([^.]+)\.")
# OAuth2Client has two words, S3TablesCatalog three.
IN_CAPITALS: Final = re.compile(r"OAuth2|S3|[A-Z]+(?![a-z])|[A-Z][a-z]*")
# Flow calls a request and its response by one name. Both are written with their module: request.Spec, response.Spec.
OF_TWO_THINGS: Final = {"Spec"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_module_and_its_public_classes_are_named_with_words_of_the_glossary(path: Path) -> None:
    unknown = {name: words for name in _names(path) if (words := _find_unknown(name))}
    assert not unknown, (
        "use words of docs/glossary.md. Add one there only if Iceberg, Flow or Spark has it, or if no other word fits"
    )


def test_a_name_of_a_public_class_or_alias_stands_for_one_thing() -> None:
    counts = Counter(name for path in MODULES for name in (*_classes(path), *_aliases(path)))
    assert {name for name, count in counts.items() if count > 1} == OF_TWO_THINGS


def test_every_word_of_the_glossary_stands_once_in_its_section() -> None:
    for section in GLOSSARY.read_text().split("\n## ")[1:-1]:
        terms = [term for term in TERM.findall(section) if term not in ("word", "---")]
        assert terms
        assert terms == sorted(terms, key=str.casefold)
        assert len(terms) == len(set(terms))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sinks", ["sinks"]),
        ("Handover", ["handover"]),
        ("file_presence", ["presence"]),
        ("TableUpkeep", ["upkeep"]),
        ("folding", ["folding"]),
    ],
)
def test_a_word_that_the_glossary_does_not_have_is_found(name: str, words: list[str]) -> None:
    assert _find_unknown(name) == words


def _names(path: Path) -> Iterator[str]:
    if path.name.startswith("__"):
        yield path.parent.name
    else:
        yield path.stem
    yield from _classes(path)


def _classes(path: Path) -> Iterator[str]:
    """Yield the names of the public classes of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _aliases(path: Path) -> Iterator[str]:
    """Yield the names of the public aliases of types of a module."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.AnnAssign(ast.Name(name), ast.Name("TypeAlias")) if not name.startswith("_"):
                yield name


def _words(name: str) -> list[str]:
    found = IN_CAPITALS.findall(name) if name[0].isupper() else name.split("_")
    return [word.casefold() for word in found]


def _find_unknown(name: str) -> list[str]:
    return [word for word in _words(name) if not {word, *_singulars(word)} & KNOWN]


def _singulars(word: str) -> Iterator[str]:
    if word.endswith("ies"):
        yield f"{word[:-3]}y"
    if word.endswith("es"):
        yield word[:-2]
    if word.endswith("s"):
        yield word[:-1]


def _forms(verb: str) -> Iterator[str]:
    """Yield what a verb may look like: added, adding, adds; written is listed."""
    stem = verb.removesuffix("e")
    yield from (verb, f"{verb}s", f"{stem}ed", f"{stem}ing", f"{verb}{verb[-1]}ed", f"{verb}{verb[-1]}ing")
    if verb.endswith("y"):
        yield f"{verb[:-1]}ied"
    yield from IRREGULAR.get(verb, ())


IRREGULAR: Final = {
    "bind": ("bound",),
    "break": ("broken",),
    "find": ("found",),
    "hold": ("held",),
    "lose": ("lost",),
    "rewrite": ("rewrote", "rewritten"),
    "write": ("wrote", "written"),
}


def _known() -> frozenset[str]:
    terms, _, ordinary = GLOSSARY.read_text().partition(ORDINARY)
    words = {word for term in TERM.findall(terms) for word in re.findall(r"[A-Z]?[\w]+", term)}
    verbs, *others = (re.split(r",\s+", group) for group in GROUP.findall(ordinary))
    words |= {word for group in others for word in group}
    words |= {form for verb in (*verbs, *terms_of_requests(words)) for form in _forms(verb)}
    return frozenset(word.casefold() for word in words)


def terms_of_requests(words: set[str]) -> set[str]:
    """Return the requests, whose responses are their participles."""
    return words & {"acknowledge", "apply", "flush", "load", "open", "start", "store", "validate"}


KNOWN: Final = _known()
