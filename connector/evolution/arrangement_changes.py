"""The changes of a table's partition spec and of its sort order, as values. They apply to new data files only."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TypeAlias

from connector.config.terms import SortTerm, Term
from connector.evolution.arrangement_terms import ResolvedTerms
from connector.model.binding import Arrangement


@dataclass(frozen=True)
class SetPartitionSpec:
    """New data files have other partitions. Older ones keep theirs."""

    terms: tuple[Term, ...]  # with the names of columns

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it needs."""
        return frozenset(term.name for term in self.terms)

    @property
    def effect(self) -> str:
        by = ", ".join(map(str, self.terms))
        return f"partition new rows by {by}" if by else "do not partition new rows"


@dataclass(frozen=True)
class SetSortOrder:
    """New data files are sorted in another way. Older ones stay."""

    terms: tuple[SortTerm, ...]  # with the names of columns

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it needs."""
        return frozenset(each.term.name for each in self.terms)

    @property
    def effect(self) -> str:
        return (
            f"sort new data files by {', '.join(map(str, self.terms))}" if self.terms else "do not sort new data files"
        )


ArrangementChange: TypeAlias = SetPartitionSpec | SetSortOrder


def plan_arrangement(current: Arrangement, resolved: ResolvedTerms) -> Iterator[ArrangementChange]:
    """Plan the partition spec and the sort order, where they are not the table's current ones already."""
    terms, ids = resolved.terms, resolved.column_ids
    if terms.partition_by is not None:
        wanted = [(ids[term.name], term.full_transform) for term in terms.partition_by]
        if wanted != [(field.source_id, field.transform) for field in current.partition]:
            yield SetPartitionSpec(terms.partition_by)
    if terms.sort_by is not None:
        order = [
            (ids[each.term.name], each.term.full_transform, each.is_descending, each.nulls_first)
            for each in terms.sort_by
        ]
        if order != [astuple(field) for field in current.sort]:
            yield SetSortOrder(terms.sort_by)
