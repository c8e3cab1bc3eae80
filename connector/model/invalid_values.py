"""Values that their column cannot hold: what a binding's policy says, where rejected rows go, and what was done."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from connector.model.table_identifier import TableIdentifier

DEFAULT_MAX_REJECTED_RATIO: Final = 0.1
REJECTED_SUFFIX: Final = "__rejected"


class OnInvalid(StrEnum):
    """What to do with a value that its column cannot hold."""

    STOP = "stop"
    NULL = "null"
    QUARANTINE = "quarantine"


def name_rejected_table(path: TableIdentifier, on_invalid: OnInvalid) -> TableIdentifier | None:
    """Return the name of the table that gets the rejected rows of another one. None if the policy rejects no rows."""
    return TableIdentifier(path.namespace, path.name + REJECTED_SUFFIX) if on_invalid is OnInvalid.QUARANTINE else None


class Treatment(StrEnum):
    """What was done with a value."""

    CLAMPED = "clamped"  # to the nearest value that its column can hold
    NULLED = "nulled"
    REJECTED = "rejected"  # its row went to the table of rejected rows


class Treated(msgspec.Struct, frozen=True):
    """How many values were treated in the same way, and where one of them is."""

    count: int
    example: str = ""

    def __add__(self, other: "Treated") -> "Treated":
        return Treated(self.count + other.count, self.example or other.example)


_Kind: TypeAlias = tuple[str, Treatment]  # of a field


class Tally(msgspec.Struct):
    """Treated values by field and treatment."""

    _treated: dict[_Kind, Treated] = msgspec.field(default_factory=dict)

    def add(self, of_field: str, treatment: Treatment, treated: Treated) -> None:
        """Add treated values of one field. A count of 0 leaves no entry."""
        if treated.count:
            kind = of_field, treatment
            self._treated[kind] = self._treated.get(kind, Treated(0)) + treated

    def add_all(self, other: "Tally") -> None:
        """Add the values of another tally."""
        for of_field, treatment, treated in other:
            self.add(of_field, treatment, treated)

    def total(self, treatment: Treatment) -> int:
        """Return the number of values that were treated in this way, of all fields."""
        return sum(treated.count for _, kind, treated in self if kind is treatment)

    def __iter__(self) -> Iterator[tuple[str, Treatment, Treated]]:
        for (of_field, treatment), treated in self._treated.items():
            yield of_field, treatment, treated

    def __bool__(self) -> bool:
        return bool(self._treated)
