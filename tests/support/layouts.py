"""The layouts of a transaction's tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from connector.spark.blocks.transaction_files import TableLayout


@dataclass(frozen=True)
class MadeLayouts:
    """Layouts that functions make, one for each table."""

    tables: Sequence[Callable[[], TableLayout]]
    bindings: int

    def make(self, table_index: int) -> TableLayout:
        return self.tables[table_index]()


def made_by(*tables: Callable[[], TableLayout]) -> MadeLayouts:
    return MadeLayouts(tables, len(tables))


def fixed(*layouts: TableLayout) -> MadeLayouts:
    """Each time another layout, which is equal."""
    return made_by(*[partial(replace, layout) for layout in layouts])
