"""The name of a table in its catalog."""

from typing import TypeAlias

TableIdentifier: TypeAlias = tuple[str, str]  # namespace, name
