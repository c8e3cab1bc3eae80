"""Reads the files that the commands' arguments name: JSON, and YAML as Flow reads it."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connector.host.errors import UserError
from protocol.flow import Json
from protocol.json_values import DEEPEST, has_half_pair, is_nested_deeply

if TYPE_CHECKING:
    import yaml

STDIN: Final = "-"
SOPS: Final = "sops"  # the property that sops adds to a file that it encrypts
SOPS_SUFFIX: Final = "_sops"  # of the names of encrypted properties, in Flow's configs
# By a part of the YAML parser's own text, which may also quote a part of a secret.
_PROBLEMS: Final = (
    (r"'\\t' that cannot start", "the line begins with a tab. Indent with spaces."),
    ("undefined alias|constructor for the tag|tag handle", "the value begins with * or !. Put it in quotes."),
    ("cannot start any token", "the value begins with a character that YAML reserves. Put the value in quotes."),
    (
        "mapping values are not allowed",
        "there is a second colon in the line, or the line is indented too far. Put a value with `: ` in quotes.",
    ),
    ("could not find expected ':'", "there is no colon after a key, in this line or in the one before. Add it."),
    ("expected <block end>", "the line is indented differently from the lines that it belongs to. Correct that."),
    ("expected ',' or", "a { or [ is not closed, or a comma is missing. Add it."),
    ("unexpected end of stream", "a quote is not closed. Close it."),
    ("another document", "a second document begins. Keep one, and remove the line ---."),
    ("occurs twice", "a key occurs twice. Keep one of them."),
    (
        "has another type",
        "the value has a type that configs do not have, such as `!!binary` or `!!set`. Remove the type, and write a "
        "string, a list or an object.",
    ),
    (
        "has no such value",
        "the value does not fit its type, such as the letters in `!!int abc`, or it is a number with thousands of "
        "digits. Correct it, or put it in quotes and remove the type.",
    ),
)
_OTHER_PROBLEM: Final = "the text cannot be parsed here. Correct it, or put the value in quotes."

# YAML 1.2's scalars that are not strings. PyYAML's own are those of YAML 1.1, where `no` is false and 1:30 is 90.
# Each has its tag, its pattern, and the characters that it may begin with.
_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("merge", "<<", "<"),
)
# What PyYAML makes of these has no equivalent in JSON.
_OTHER_TAGS: Final = {f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set", "timestamp")}


def read_config(file: str) -> Json:
    """Read an endpoint config; - reads stdin. Raises UserError if that fails, or if it is no plain config."""
    config = read_file(file)
    if isinstance(config, dict) and "materializations" in config:
        raise UserError(f"{file} is a Flow specification, and not an endpoint config. Give it with --flow.")
    return decrypted(config, file)


def decrypted(config: Json, where: str) -> Json:
    """Return a config with the names that it had before it was encrypted. Raises UserError if it is encrypted."""
    if isinstance(config, dict) and SOPS in config:
        raise UserError(
            f"{where} is encrypted with sops. Decrypt it first: run `sops --decrypt` with the file that is encrypted, "
            "and give the command its output instead."
        )
    return _without_suffix(config)


def read_file(file: str) -> Json:
    """Read a JSON or YAML file; - reads stdin. Raises UserError if that fails."""
    content, name = _read_bytes(file), "stdin" if file == STDIN else file
    is_json = file.endswith(".json") or (file == STDIN and content.lstrip()[:1] in (b"{", b"["))
    try:
        value = _parse(content, name, is_json=is_json)
        is_deep = is_nested_deeply(value)
    except RecursionError:
        is_deep = True
    if is_deep:
        raise UserError(
            f"{name} is nested too deeply: it has more than {DEEPEST} objects and lists within each other. Correct it."
        )
    if has_half_pair(value):
        raise UserError(f"{name}: a string has half of a surrogate pair, which is no character. Correct it.")
    return value


def _read_bytes(file: str) -> bytes:
    if file == STDIN and sys.stdin is None:
        raise UserError("stdin must be open: the argument - says that a file's contents come from it.")
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # such as a name with a null character
        raise UserError(f"{file!r} cannot be read: {error}.") from error


def _parse(content: bytes, name: str, *, is_json: bool) -> Json:
    # They take 30 ms and more to load, which `spec` need not wait for.
    import orjson

    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        if is_json and "depth limit" in error.msg:
            raise RecursionError from error
        if is_json:
            raise UserError(f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}.") from error
    return _parse_yaml(content, name)


def _parse_yaml(content: bytes, name: str) -> Json:
    import yaml

    try:
        return yaml.load(content, Loader=_make_loader())
    except yaml.MarkedYAMLError as error:
        text = error.problem or ""
        problem = next((ours for theirs, ours in _PROBLEMS if re.search(theirs, text)), _OTHER_PROBLEM)
        mark = error.context_mark if "end of stream" in text else error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{name} is not YAML: {where}{problem}") from error
    except yaml.YAMLError as error:
        line = content[: getattr(error, "position", 0) or 0].count(b"\n") + 1
        raise UserError(f"{name} is not YAML: line {line}: a character is not allowed. Save it as UTF-8.") from error


@cache
def _make_loader() -> "type[yaml.SafeLoader]":
    import yaml

    class Loader(yaml.SafeLoader):
        """Makes JSON values: keys are strings, and a key must not occur twice."""

        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - add_implicit_resolver fills it

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            if node.tag in _OTHER_TAGS:
                raise yaml.constructor.ConstructorError(None, None, "has another type", node.start_mark)
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError, ArithmeticError):  # PyYAML lets them through
                raise yaml.constructor.ConstructorError(None, None, "has no such value", node.start_mark) from None

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                    key.tag = "tag:yaml.org,2002:str"
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(None, None, "occurs twice", key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    for tag, pattern, first in _SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), [*first])
    return Loader


def _without_suffix(value: Json) -> Json:
    match value:
        case dict():
            return {name.removesuffix(SOPS_SUFFIX): _without_suffix(member) for name, member in value.items()}
        case list():
            return [*map(_without_suffix, value)]
        case _:
            return value
