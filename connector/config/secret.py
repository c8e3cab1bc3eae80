"""Strings that nobody is to see."""

from connector.redaction import hide_obtained


class Secret:
    """A string that shows only to those who ask for it: no repr, log line, error or serializer does."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        hide_obtained(value)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)
