"""Who has written to a key range since a process opened: it must have stopped, whatever any log says."""

from collections.abc import Iterable
from dataclasses import dataclass

from connector.model.state import StagedCommit
from simulation.lake import BrokenPromiseError


@dataclass(frozen=True)
class Author:
    """Who sends a commit: the shard of a session, by the order in which the runtime began them."""

    session: int
    key_range: str

    def overlaps(self, other: "Author") -> bool:
        (begin, end), (other_begin, other_end) = self.key_range.split("-"), other.key_range.split("-")
        return begin <= other_end and other_begin <= end


@dataclass(frozen=True)
class _Takeover:
    """A process's own commit or a reset: from here on only its author may write to its key range, and who opens
    later."""

    author: Author
    value: str  # of the fence
    sequence_number: int


@dataclass(frozen=True)
class _Beginning:
    """What a process knows of a table when it has opened."""

    sequence_number: int
    waiting: frozenset[str]  # fence values that its state names


class Takeovers:
    """Every table's, by the uuid of its generation."""

    def __init__(self) -> None:
        self._beginnings: dict[tuple[Author, str], _Beginning] = {}
        self._own: dict[str, Author] = {}  # who has staged a fence value
        self._prevs: dict[str, str] = {}  # by what was staged on them
        self._takeovers: dict[str, list[_Takeover]] = {}
        self.landed: set[str] = set()  # fence values

    def opens(self, author: Author, table: str, sequence_number: int, staged: Iterable[StagedCommit]) -> None:
        waiting = frozenset(commit.next for commit in staged if commit.table_uuid == table)
        self._beginnings[author, table] = _Beginning(sequence_number, waiting)

    def stages(self, author: Author, staged: Iterable[StagedCommit]) -> None:
        for commit in staged:
            self._own[commit.next] = author
            self._prevs[commit.next] = commit.prev.rpartition(":")[2]

    def commits(self, author: Author, table: str, value: str, sequence_number: int) -> None:
        """A process adds no rows before those that its state named when it opened. It adds none once another one has
        for a part of its key range: but for what its state named, and those that it found in the table then."""
        self._land(value)
        if self._own.get(value) != author:
            return  # it finishes what somebody else has staged
        if (author, table) not in self._beginnings:
            raise BrokenPromiseError(f"{author} has added rows to a table that it has never opened")
        beginning = self._beginnings[author, table]
        if waiting := beginning.waiting - self.landed:
            raise BrokenPromiseError(f"{author} has added rows before its predecessors' {sorted(waiting)}")
        for other in self._takeovers.get(table, ()):
            is_known = other.sequence_number <= beginning.sequence_number or other.value in beginning.waiting
            if other.author != author and other.author.overlaps(author) and not is_known:
                raise BrokenPromiseError(f"{author} has added rows after {other.author} had")
        self._takeovers.setdefault(table, []).append(_Takeover(author, value, sequence_number))

    def resets(self, author: Author, table: str, value: str, sequence_number: int) -> None:
        """An operator's reset takes a key range over from all that were open by then, whatever they hold."""
        self._land(value.rpartition(":")[2])
        self._takeovers.setdefault(table, []).append(_Takeover(author, "", sequence_number))

    def _land(self, value: str) -> None:
        """It, and all that it was staged behind."""
        while value and value not in self.landed:
            self.landed.add(value)
            value = self._prevs.get(value, "")
