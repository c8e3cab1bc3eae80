"""A catalog, and a rewriting of files, whose process may end before and after everything that they do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.rewriting.converted_files import Rewriting
from connector.host.refresh import Refreshed
from connector.iceberg.catalogs.sql import SqlTables
from connector.model.properties import Properties
from connector.model.state import DataFile
from support.tables import rewrite_here


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

    def rewrite(
        self, rewriting: Rewriting, sources: Sequence[SourceFile], access: Refreshed[Properties]
    ) -> list[tuple[DataFile, ...] | None]:
        with self.around():
            return rewrite_here(rewriting, sources, access)


class MortalCatalog(SqlTables):
    """A Local catalog."""

    def __init__(self, warehouse: Path, moments: Moments) -> None:
        self._moments = moments
        super().__init__("local", {"uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}"})

    def create_namespace(self, *args: Any, **kwargs: Any) -> None:
        with self._moments.around():
            super().create_namespace(*args, **kwargs)

    def create_table(self, *args: Any, **kwargs: Any) -> Any:
        with self._moments.around():
            return super().create_table(*args, **kwargs)

    def drop_table(self, *args: Any, **kwargs: Any) -> None:
        with self._moments.around():
            super().drop_table(*args, **kwargs)

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        with self._moments.around():
            return super().commit_table(*args, **kwargs)
