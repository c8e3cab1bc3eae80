"""Modules that a library imports and the connector does not use: they are imported when something of them is used.

The answer to Open waits for imports. PyIceberg imports a parser of filters, and with it PyParsing, which takes a
fifteenth of them.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

# Others import these as a whole, once. To import a name from one of them, or to import it again, loads it.
LATE: Final = ("pyiceberg.expressions.parser",)


def import_late() -> None:
    """Let this process import these modules later. Call it before anything of their library is imported."""
    sys.meta_path.insert(0, _LateFinder())


class _LateFinder:
    """Finds the modules that are imported later, and leaves all others to the next finder."""

    def find_spec(self, name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in LATE else None
        if spec and spec.loader:
            from importlib.util import LazyLoader  # `spec` answers without it

            spec.loader = LazyLoader(spec.loader)
        return spec
