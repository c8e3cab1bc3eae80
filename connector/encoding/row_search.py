"""Finds the rows of keys in data files: by the key columns, and by the documents where columns cannot tell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchedFile:
    """A data file, or a range of its row groups, and which of its rows are deleted."""

    path: str  # exactly as the table's manifest, or the connector state, has it
    size: int  # bytes
    first_row_group: int = 0
    row_groups: int | None = None  # None: all that follow
    position_deletes: tuple[str, ...] = ()  # the table's delete files that may apply
    located: tuple[str, ...] = ()  # objects of located rows that pending commits delete
