"""Which parts of PyIceberg the connector overrides or uses although they are private, read from both sources."""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pyiceberg

import connector

CONNECTOR: Final = Path(connector.__file__).parent
PYICEBERG: Final = Path(pyiceberg.__file__).parent
UNKNOWN: Final = "?"  # stands for the class of an object that only a run would tell
INTERFACES: Final = "pyiceberg.io"  # its classes are there to be implemented


def uses() -> set[str]:
    """Return the name of each private part that the connector uses, and of each public one that it overrides."""
    return {name for module in _modules() for name in uses_of(module, _tree(module))}


def uses_of(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names that one module of the connector uses."""
    classes = _classes(module, tree)
    found = {name for body in _class_bodies(tree) if body.name in classes for name in _of_class(body, classes)}
    yield from found
    explained = {name.rpartition(".")[2] for name in found}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if any(map(_is_private, name.split("."))))
        others = set(_of_others(node)) & _private_names()
        yield from (f"{UNKNOWN}.{name}" for name in others - explained)


def _of_class(body: ast.ClassDef, classes: Mapping[str, type]) -> Iterator[str]:
    bases = [base for base in classes[body.name].__mro__ if _is_pyiceberg(base)]
    defined = {each.name for each in body.body if isinstance(each, ast.FunctionDef)}
    accessed = {name for node in ast.walk(body) for name in (*_own(node), *_of_others(node))}
    for name in defined | accessed:
        owner = next((base for base in bases if _defines(base, name)), None)
        if owner is not None and (owner.__module__ != INTERFACES or _is_private(name)):
            yield f"{_qualified(owner)}.{name}"


def _own(node: ast.AST) -> list[str]:
    """Return the private attribute of its own object that an expression reads or sets, if any."""
    match node:
        case ast.Attribute(ast.Name("self" | "cls") | ast.Call(ast.Name("super")), name) if _is_private(name):
            return [name]
    return []


def _of_others(node: ast.AST) -> list[str]:
    """Return the private attribute of another object that an expression reads or sets, also by `getattr`, if any."""
    match node:
        case ast.Call(ast.Name("getattr" | "setattr" | "hasattr"), [_, ast.Constant(str(name)), *_]) if _is_private(
            name
        ):
            return [name]
        case ast.Attribute(_, name) if _is_private(name) and not _own(node):
            return [name]
    return []


def described(name: str) -> str:
    """Return a digest of a part's source, which includes its arguments, or the annotation of an attribute.

    Raises LookupError if PyIceberg does not have the part.
    """
    part = _found(name)
    if isinstance(part, str):
        return part
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(part)))
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def _found(name: str) -> Any:
    """Return a function or a class, or the annotation of an attribute, by its dotted name."""
    owner, _, part = name.rpartition(".")
    module, _, kind = owner.rpartition(".")
    within = vars(_imported(owner) or vars(import_module(module))[kind])
    if part not in within:
        return str(within["__annotations__"][part])
    found = within[part]
    return getattr(found, "fget", None) or getattr(found, "__func__", found)


def _imported(module: str) -> ModuleType | None:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        return None


def _modules() -> Iterator[str]:
    for path in sorted(CONNECTOR.rglob("*.py")):
        parts = path.relative_to(CONNECTOR.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _tree(module: str) -> ast.Module:
    path = CONNECTOR.parent.joinpath(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def _class_bodies(tree: ast.Module) -> Iterable[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def _classes(module: str, tree: ast.Module) -> dict[str, type]:
    """Return a module's classes that have one of PyIceberg's among their bases."""
    names = [body.name for body in _class_bodies(tree) if body.bases]
    found = {name: getattr(import_module(module), name) for name in names}
    return {name: kind for name, kind in found.items() if any(map(_is_pyiceberg, kind.__mro__))}


def _is_pyiceberg(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "pyiceberg"


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def _defines(kind: type, name: str) -> bool:
    if name in vars(kind) or name in inspect.get_annotations(kind):
        return True
    return _is_private(name) and name in _assigned(ast.parse(textwrap.dedent(inspect.getsource(kind))))


def _assigned(tree: ast.AST) -> set[str]:
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in stored}


@cache
def _private_names() -> frozenset[str]:
    """Return every private name that PyIceberg gives to a function, a class or an attribute."""
    trees = [ast.parse(path.read_text()) for path in PYICEBERG.rglob("*.py")]
    named = (_given(node) for tree in trees for node in ast.walk(tree))
    return frozenset(name for name in named if _is_private(name))


def _given(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Attribute(attr=name, ctx=ast.Store()) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""
