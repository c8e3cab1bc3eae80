"""A catalog, and a rewriting of files, whose process may end before and after everything that they do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile
from support.tables.local_tables import local_catalog, rewrite_here
from support.tables.planted_faults import Send, intercept


class Crash(BaseException):
    """The end of the process: nothing in the connector handles it."""


class Moments:
    """When the process ends: after so many moments of them all, or never."""

    def __init__(self) -> None:
        self._left: int | None = None

    @contextmanager
    def ending_after(self, moments: int) -> Iterator[None]:
        self._left = moments
        try:
            yield
        finally:
            self._left = None

    @contextmanager
    def around(self) -> Iterator[None]:
        self._reach()
        yield
        self._reach()

    def _reach(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Crash

    def send(self, send: Send) -> Any:
        with self.around():
            return send()

    def rewrite(
        self, target: TargetFiles, sources: Sequence[SourceFile], access: Refreshed[Properties]
    ) -> list[tuple[DataFile, ...] | None]:
        with self.around():
            return rewrite_here(target, sources, access)


def open_mortal(warehouse: Path, moments: Moments) -> Catalog:
    """Open a Local catalog."""
    catalog = local_catalog(warehouse)
    for method in ("create_namespace", "create_table", "drop_table", "commit_table"):
        intercept(catalog, method, moments.send)
    return catalog
