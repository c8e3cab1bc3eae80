"""Finds the columns of the terms in `partition_by` and `sort_by`, and everything that is wrong with the terms."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from msgspec.structs import replace
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType, TimestamptzNanoType

from connector.config.terms import (
    IDENTITY,
    SHOWN_TRANSFORMS,
    TIME_TRANSFORMS,
    TRANSFORMS_WITH_WIDTH,
    VOID,
    SortTerm,
    Term,
)
from connector.evolution.field_config import fold_case

PARTITION_BY: Final = "partition_by"
SORT_BY: Final = "sort_by"
MAX_WIDTH: Final = (1 << 31) - 1  # Java's largest int
SHOWN_FIELDS: Final = 10  # in an error


@dataclass(frozen=True)
class ArrangementTerms:
    """The terms of a binding's config. None: a new table has no such terms, and an existing one keeps its own."""

    partition_by: tuple[Term, ...] | None = None
    sort_by: tuple[SortTerm, ...] | None = None

    @property
    def names(self) -> Mapping[str, frozenset[str]]:
        """The names in the terms, by the setting that has them."""
        return {
            PARTITION_BY: frozenset(term.name for term in self.partition_by or ()),
            SORT_BY: frozenset(each.term.name for each in self.sort_by or ()),
        }


@dataclass(frozen=True)
class Source:
    """A field that a term may name, and its column."""

    field: str
    column: str
    type: IcebergType | None = None  # of the column, when the table has been altered; None if there is none
    column_id: int | None = None  # None: the table does not have the column yet
    is_document: bool = False
    obstacle: str = ""  # why the field has no column, and what to do; "" if it has one


@dataclass(frozen=True)
class ResolvedTerms:
    """The terms with the names of columns, and everything that is wrong with them, a sentence each."""

    terms: ArrangementTerms
    column_ids: Mapping[str, int | None]  # by column
    problems: tuple[str, ...]


def find_source(name: str, sources: Iterable[Source]) -> Source | None:
    """Find the field that a term names: by its own name, else by its column's, else by one in another case."""
    sources = tuple(sources)
    keys: tuple[Callable[[Source], bool], ...] = (
        lambda source: source.field == name,
        lambda source: source.column == name,
        lambda source: source.field.lower() == name.lower(),
        lambda source: source.column.lower() == name.lower(),
    )
    return next((source for is_named in keys for source in sources if is_named(source)), None)


def resolve_terms(terms: ArrangementTerms, sources: Sequence[Source], columns: Collection[str]) -> ResolvedTerms:
    """Find the columns of all terms. `columns` are the names of all columns that the table will have."""
    partition_by = [(term, find_source(term.name, sources)) for term in terms.partition_by or ()]
    sort_by = [(each.term, find_source(each.term.name, sources)) for each in terms.sort_by or ()]
    partition_terms, sort_terms = _name_columns(partition_by), _name_columns(sort_by)
    problems = (
        *_find_problems(PARTITION_BY, partition_by, sources),
        *_find_repeated_partition_fields([term for term in partition_terms if term]),
        *_find_taken_names([term for term in partition_terms if term], columns),
        *_find_problems(SORT_BY, sort_by, sources),
        *_find_repeated_sort_fields([term for term in sort_terms if term]),
    )
    resolved = ArrangementTerms(
        None if terms.partition_by is None else tuple(term for term in partition_terms if term),
        None
        if terms.sort_by is None
        else tuple(replace(each, term=term) for each, term in zip(terms.sort_by, sort_terms, strict=True) if term),
    )
    ids = {source.column: source.column_id for _, source in partition_by + sort_by if source}
    return ResolvedTerms(resolved, ids, problems)


def name_partition_field(term: Term) -> str:
    """Name the partition field of a column, as Spark's ADD PARTITION FIELD and PyIceberg do."""
    match term.transform:
        case "identity":
            return term.name
        case "bucket":
            return f"{term.name}_bucket_{term.width}"
        case "truncate":
            return f"{term.name}_trunc_{term.width}"
        case "void":
            return f"{term.name}_null"
        case time:
            return f"{term.name}_{time}"


def name_derived_fields(terms: ArrangementTerms, sources: Sequence[Source]) -> Iterator[str]:
    """Name the partition fields that have another name than their column. No column can have such a name."""
    for term in terms.partition_by or ():
        source = find_source(term.name, sources)
        if source and term.transform != IDENTITY:
            yield name_partition_field(replace(term, name=source.column))


_FoundTerm: TypeAlias = tuple[Term, Source | None]


def _name_columns(found: Iterable[_FoundTerm]) -> list[Term | None]:
    """Return the terms with the names of columns; None for a term that names no field."""
    return [replace(term, name=source.column) if source else None for term, source in found]


def _find_problems(setting: str, found: Iterable[_FoundTerm], sources: Sequence[Source]) -> Iterator[str]:
    for term, source in found:
        if source is None:
            yield f"{setting} names {term.name!r}, which is no field of the collection. {_propose(term.name, sources)}"
        elif source.is_document:
            yield (
                f"{setting} names the root document {source.field!r}, which differs in nearly every row. Name one of "
                "its fields instead."
            )
        elif source.obstacle:
            yield f"{setting} names the field {source.field!r}, which has no column: {source.obstacle}"
        elif source.type and term.transform not in (possible := _list_transforms(setting, source.type)):
            allowed = ", ".join(each for each in possible if each != VOID)
            yield (
                f"{setting} has {term}, but the column of {source.field!r} is of type {source.type}, to which "
                f"{term.transform} does not apply. The transforms for this type are {allowed}."
            )
        if term.width is not None and not 1 <= term.width <= MAX_WIDTH:
            yield f"{setting} has {term}: the number must be at least 1 and at most {MAX_WIDTH}."
        if setting == SORT_BY and term.transform == VOID:
            yield f"{setting} has {term}, which is null in every row. Remove it."


def _propose(name: str, sources: Sequence[Source]) -> str:
    names = {
        each.lower(): each for source in sources if not source.is_document for each in (source.column, source.field)
    }
    match get_close_matches(name.lower(), names, n=1, cutoff=0.5):
        case [nearest]:
            return f"Did you mean {names[nearest]!r}?"
        case _:
            fields = [source.field for source in sources if not source.is_document]
            more = ", …" if len(fields) > SHOWN_FIELDS else ""
            return f"Its fields are {', '.join(map(repr, fields[:SHOWN_FIELDS]))}{more}."


def _list_transforms(setting: str, column_type: IcebergType) -> list[str]:
    return [each for each in SHOWN_TRANSFORMS if each == VOID or _can_transform(setting, each, column_type)]


def _can_transform(setting: str, transform: str, column_type: IcebergType) -> bool:
    # PyIceberg would write the values of such partitions to manifests, and then refuse to read these.
    if setting == PARTITION_BY and transform == IDENTITY and isinstance(column_type, TimestamptzNanoType):
        return False
    metadata_text = f"{transform}[1]" if transform in TRANSFORMS_WITH_WIDTH else transform
    return parse_transform(metadata_text).can_transform(column_type)


def _find_repeated_partition_fields(terms: Iterable[Term]) -> Iterator[str]:
    first: dict[tuple[str, str], Term] = {}
    for term in terms:
        is_time = term.transform in TIME_TRANSFORMS
        other = first.setdefault((term.name, "time" if is_time else term.transform), term)
        if other is term:
            continue
        if is_time and other.transform != term.transform:
            yield (
                f"{PARTITION_BY} has {other} and {term}, which both divide the same field by its time. Keep one of "
                "them: the finer one also serves queries of longer times."
            )
        else:
            yield f"{PARTITION_BY} has {other} and {term}, the same transform of one field. Keep one of them."


def _find_taken_names(terms: Iterable[Term], columns: Collection[str]) -> Iterator[str]:
    folded = {fold_case(column): column for column in columns}
    for term in terms:
        name = name_partition_field(term)
        if term.transform != IDENTITY and fold_case(name) in folded:
            yield (
                f"{PARTITION_BY} has {term}, whose partition field has the name {name!r}, and the column "
                f"{folded[fold_case(name)]!r} has this name, too. Remove one of them, or give the field of that column "
                'another column with {"column": "…"} in its field config.'
            )


def _find_repeated_sort_fields(terms: Iterable[Term]) -> Iterator[str]:
    seen: set[Term] = set()
    for term in terms:
        if term in seen:
            yield f"{SORT_BY} has {term} twice. Keep the first one: the second one has no effect."
        seen.add(term)
