"""Strings that must not be shown."""

from connector.host.redaction import hide_obtained


class Secret:
    """A string that only `reveal` shows: its repr hides it, and so do logs, errors and serializers."""

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
