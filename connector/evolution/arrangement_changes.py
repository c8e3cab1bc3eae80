"""The changes of a table's partition spec and of its sort order, as values. They apply to new data files only."""

from dataclasses import dataclass
from typing import TypeAlias

from connector.config.terms import SortTerm, Term
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class SetPartitionSpec:
    """New data files have other partitions. Older ones keep theirs."""

    path: TableIdentifier
    terms: tuple[Term, ...]  # with the names of columns

    @property
    def description(self) -> str:
        effect = (
            f"partition new rows by {', '.join(map(str, self.terms))}" if self.terms else "do not partition new rows"
        )
        return f"alter table {'.'.join(self.path)}: {effect}"


@dataclass(frozen=True)
class SetSortOrder:
    """New data files are sorted in another way. Older ones stay."""

    path: TableIdentifier
    terms: tuple[SortTerm, ...]  # with the names of columns

    @property
    def description(self) -> str:
        effect = (
            f"sort new data files by {', '.join(map(str, self.terms))}" if self.terms else "do not sort new data files"
        )
        return f"alter table {'.'.join(self.path)}: {effect}"


ArrangementChange: TypeAlias = SetPartitionSpec | SetSortOrder
