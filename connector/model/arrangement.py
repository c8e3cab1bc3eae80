"""How rows are arranged in a table's data files: by partition, and in a sort order. Ids are those of the table."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PartitionField:
    """A field of a partition spec. Its values are those of a column, transformed."""

    source_id: int  # the column's field id
    transform: str  # as the table's metadata has it, such as bucket[16]


@dataclass(frozen=True)
class SortField:
    """A field of a sort order. Its values are those of a column, transformed."""

    source_id: int  # the column's field id
    transform: str  # as the table's metadata has it
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Arrangement:
    """The partition spec and the sort order that data files are written by."""

    spec_id: int = 0
    partition: tuple[PartitionField, ...] = ()  # every field of the spec, in its order
    sort_order_id: int = 0
    sort: tuple[SortField, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether rows stay in the order in which they come, in any file."""
        return not (self.partition or self.sort)


PLAIN: Final = Arrangement()
