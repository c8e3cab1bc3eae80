"""A module that a library imports and the connector does not use: it is imported when something of it is used.

The answer to Open waits for imports. PyIceberg imports a parser of filters, and with it PyParsing, which takes a
fifteenth of them.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

# PyIceberg imports it as a whole, once. To import a name from it, or to import it again, loads it.
LATE: Final = "pyiceberg.expressions.parser"


def import_late() -> None:
    """Let this process import the module later. Call it before anything of the library is imported."""
    sys.meta_path.insert(0, _LateFinder())


class _LateFinder:
    """Finds the module that is imported later, and is done then. It leaves all others to the next finder."""

    def find_spec(self, name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == LATE else None
        if spec and spec.loader:
            from importlib.util import LazyLoader  # `spec` answers without it

            spec.loader = LazyLoader(spec.loader)
            sys.meta_path.remove(self)
        return spec
