"""Versions of a collection that follow each other, and documents of them: all of it from a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, TypeAlias

from evolution.table_model import Wanted
from fixtures.collection import DOCUMENT, Collection, Field
from support.rows.expected_rows import column_type

Json: TypeAlias = Any

MODES: Final = ("full", "full", "full", "add_columns", "strict")


def _instant(random: Random) -> str:
    second = f"{random.randrange(60):02}{random.choice(['', '.25', '.000001'])}"
    return f'"{random.randrange(1900, 2100)}-0{random.randrange(1, 10)}-07T12:34:{second}Z"'


def _integer(random: Random) -> str:
    return _mostly(random, str(random.randrange(-999, 999)), str(2**53 + 1), str(-(2**63)))


def _number(random: Random) -> str:
    return _mostly(random, random.choice(["7.0", "-3.0", str(random.randrange(99))]), "0.5", "1e+300")


def _decimal(scale: int) -> Callable[[Random], str]:
    """Numbers and numeric strings that have no more digits than the columns of decimals here."""

    def text(random: Random) -> str:
        number = _mostly(random, random.choice(["7.0", "-3", "0.25"]), "1234567890123456789.5", f"0.{'1' * scale}")
        return random.choice([number, f'"{number}"'])

    return text


def _mostly(random: Random, usual: str, *others: str) -> str:
    return random.choice(others) if random.random() < 0.1 else usual


# By the type of the column that the field's config asks for.
DECIMALS: Final[Mapping[str, Mapping[str, int]]] = {
    f"decimal({precision}, {scale})": {"precision": precision, "scale": scale}
    for precision, scale in ((21, 2), (30, 2), (38, 2), (30, 4))
}

# The JSON text of a value of each kind.
VALUES: Final[Mapping[str, Callable[[Random], str]]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda random: random.choice(["true", "false"]),
    "date": lambda random: f'"{random.randrange(1, 9999):04}-0{random.randrange(1, 10)}-{random.randrange(10, 28)}"',
    "date-time": _instant,
    "base64": lambda random: random.choice(['""', '"AA=="', '"/+8="']),
    "object": lambda random: f'{{"n": {random.randrange(9)}}}',
    **{kind: _decimal(config["scale"]) for kind, config in DECIMALS.items()},
}
KINDS: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]]] = {
    "integer": (("integer",), {}),
    "number": (("number",), {}),
    "boolean": (("boolean",), {}),
    "date": (("string",), {"format": "date"}),
    "date-time": (("string",), {"format": "date-time"}),
    "base64": (("string",), {"contentEncoding": "base64"}),
    "object": (("object",), {}),
    "string": (("string",), {}),
    "numeric string": (("integer", "string"), {"format": "integer"}),
    "mixed": (("boolean", "integer", "string"), {}),
    **dict.fromkeys(DECIMALS, (("integer", "number", "string"), {"format": "number"})),
}


@dataclass(frozen=True)
class Property:
    """A property of the documents: its values are of its nature, whatever else the schema allows."""

    name: str
    nature: str
    kind: str
    is_key: bool = False
    is_nullable: bool = False
    exists: str = "MUST"
    config: Mapping[str, Json] | None = None

    @property
    def field(self) -> Field:
        types, string = KINDS[self.kind]
        types += ("null",) if self.is_nullable else ()
        return Field(self.name, f"/{self.name}", types, self.exists, self.is_key, string, config=self._config)

    @property
    def _config(self) -> Mapping[str, Json] | None:
        if self.kind not in DECIMALS or (self.config and "castToString" in self.config):
            return self.config
        return {**(self.config or {}), "decimal": DECIMALS[self.kind]}

    @property
    def wanted(self) -> Wanted:
        return wanted(self.field)

    def text(self, random: Random) -> str:
        """A value's JSON text."""
        if (self.is_nullable or self.exists == "MAY") and random.random() < 0.2:
            return "null"
        if self.kind in VALUES:
            return VALUES[self.kind](random)
        text = VALUES["integer" if self.kind == "numeric string" else self.nature](random)
        if self.kind != "numeric string" and random.random() < 0.05:
            text = "odd"
        is_bare = self.kind != "string" and random.random() < 0.5 and text.lstrip("-").isdecimal()
        return text if text.startswith('"') or is_bare else '"' + text.replace('"', "'") + '"'


def wanted(field: Field) -> Wanted:
    required = "null" not in field.types and field.exists == "MUST"
    type_ = column_type(field.projection(), field.is_key, field.config)
    name = (field.config or {}).get("column", field.name)
    return Wanted(field.name, name, type_, required, field.is_key, "string" in field.types)


KEY: Final = Property("id", "integer", "integer", is_key=True)
NATURES: Final[Mapping[str, str]] = {
    "amount": "number",
    "At": "date-time",
    "blob": "base64",
    "day": "date",
    "flag": "boolean",
    "qty": "integer",
    "units": "integer",
}


@dataclass(frozen=True)
class Version:
    """A publication of the task."""

    properties: Mapping[str, Property] = field(default_factory=lambda: {KEY.name: KEY})
    mode: str = "full"
    backfill: int = 0
    table: str = "evolving"

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(each.field for each in self.properties.values())

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        return (*(each.wanted for each in self.properties.values()), wanted(DOCUMENT))

    @property
    def collection(self) -> Collection:
        return Collection("acmeCo/anything", self.table, self.fields, {"schema_evolution": self.mode})

    def backfilled(self) -> "Version":
        return replace(self, backfill=self.backfill + 1)


def following(random: Random, version: Version) -> Version:
    """The version with a few changes."""
    for _ in range(random.randrange(1, 5)):
        version = replace(version, mode=random.choice(MODES), properties=_changed(random, version.properties))
    return version.backfilled() if random.random() < 0.05 else version


def _changed(random: Random, properties: Mapping[str, Property]) -> Mapping[str, Property]:
    name = random.choice([KEY.name, *NATURES])
    if name == KEY.name:
        return {**properties, name: replace(KEY, kind=random.choice(["integer", "string"]))}
    if name not in properties:
        return {**properties, name: Property(name, NATURES[name], NATURES[name])}
    if random.random() < 0.2:
        return {other: each for other, each in properties.items() if other != name}
    return {**properties, name: replace(properties[name], **_change(random, properties[name]))}


def _change(random: Random, of: Property) -> Mapping[str, Any]:
    match random.choice(["kind", "kind", "name", "name", "null", "exists", "cast"]):
        case "kind":
            return {"kind": random.choice([of.nature, of.nature, "string", "string", "number", *KINDS])}
        case "name":
            names = [of.name, f"{of.name} (1)", f"{of.name} (2)", of.name.upper()]
            return {"config": {"column": random.choice(names)}}
        case "null":
            return {"is_nullable": not of.is_nullable}
        case "exists":
            return {"exists": random.choice(["MUST", "MAY"])}
        case _:
            return {"config": random.choice([None, {"castToString": True}])}


def document(random: Random, properties: Mapping[str, Property]) -> Mapping[str, str]:
    """The texts of its values."""
    return {name: each.text(random) for name, each in properties.items()}
