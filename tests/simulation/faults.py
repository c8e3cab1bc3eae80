"""The catalog and the object store as one process sees them: they refuse, lose answers, and do things late or twice."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

from connector.state import StagedCommit
from simulation.actors import Actor, Stage
from simulation.lake import BrokenPromiseError, Commit, Lake, Path
from simulation.store import StoreIO

ANSWERS: Final = ("refused", "unavailable", "lost", "lost as a conflict", "late", "twice")


@dataclass(frozen=True)
class Author:
    """Who sends a commit: the shard of a session, by the order in which the runtime began them."""

    session: int
    key_range: str

    def overlaps(self, other: "Author") -> bool:
        (begin, end), (other_begin, other_end) = self.key_range.split("-"), other.key_range.split("-")
        return begin <= other_end and other_begin <= end


@dataclass(frozen=True)
class Takeover:
    """A session's own commit: from here on only it may write to its key range, and those who open later."""

    author: Author
    value: str  # of the fence
    sequence_number: int


@dataclass(frozen=True)
class Beginning:
    """What a session knows of a table when it opens."""

    sequence_number: int
    waiting: frozenset[str]  # fence values of what the log has committed


@dataclass
class Refusal:
    """A table that takes no commits for a while."""

    error: type[RESTError]
    commits: int  # that it is going to refuse


@dataclass
class Network:
    """What lies between every process and the lake. Rates are probabilities of one call."""

    stage: Stage
    lake: Lake
    load: float = 0.0
    commit: float = 0.0
    store: float = 0.0
    on_their_way: list[tuple[Commit, Author]] = field(default_factory=list)
    refusing: dict[Path, Refusal] = field(default_factory=dict)
    staged_by: dict[str, Author] = field(default_factory=dict)  # by fence value
    begun: dict[tuple[Author, str], Beginning] = field(default_factory=dict)  # by table uuid
    takeovers: dict[str, list[Takeover]] = field(default_factory=dict)  # by table uuid
    is_calm: bool = False

    def calm_down(self) -> None:
        self.is_calm = True
        self.load = self.commit = self.store = 0.0
        self.refusing.clear()

    def begins(self, author: Author, table_uuid: str, sequence_number: int, staged: Iterable[StagedCommit]) -> None:
        known = frozenset(commit.next for commit in staged if commit.table_uuid == table_uuid)
        self.begun[author, table_uuid] = Beginning(sequence_number, known)

    def apply(self, commit: Commit, author: Author) -> TableMetadataV2:
        metadata = self.lake.commit(commit)
        value = _fence_value(commit)
        if value is not None and self.staged_by.get(value) == author:
            self._check_alone(author, self.lake.uuid(commit.path), commit.path)
            takeover = Takeover(author, value, metadata.last_sequence_number)
            self.takeovers.setdefault(self.lake.uuid(commit.path), []).append(takeover)
        return metadata

    def _check_alone(self, author: Author, table_uuid: str, path: Path) -> None:
        """A session adds no rows once another one has for a part of its key range, whatever any log says: but for what
        its state named when it opened, and those that it found in the table then."""
        begun = self.begun.get((author, table_uuid))
        if begun is None:
            raise BrokenPromiseError(f"{author} has added rows to a table {path[1]} that it has never opened")
        for other in self.takeovers.get(table_uuid, ()):
            is_known = other.sequence_number <= begun.sequence_number or other.value in begun.waiting
            if other.author != author and other.author.overlaps(author) and not is_known:
                raise BrokenPromiseError(f"{author} has added rows to {path[1]} after {other.author} had")

    def deliver(self) -> None:
        """A commit arrives of which nobody expects it any more."""
        late, author = self.on_their_way.pop(self.stage.random.randrange(len(self.on_their_way)))
        try:
            self.apply(late, author)
            self.stage.tell(f"the network      a late commit to {late.path[1]} is applied")
        except (CommitFailedException, ValueError):
            self.stage.tell(f"the network      a late commit to {late.path[1]} is refused")


def _fence_value(commit: Commit) -> str | None:
    """What a commit of ours moves the fence to."""
    summaries = [it.snapshot.summary for it in commit.updates if isinstance(it, AddSnapshotUpdate)]
    return next((summary.get("flow.fence") for summary in summaries if summary), None)


class SimulatedCatalog(NoopCatalog):
    """One process's connection to the catalog."""

    def __init__(self, actor: Actor, network: Network, author: Author) -> None:
        super().__init__("simulated")
        self._actor, self._network, self._author = actor, network, author
        self.read: dict[Path, int] = {}  # the newest sequence number

    def load_table(self, identifier: Any) -> Table:
        self._actor.pause()
        if self._actor.stage.chance(self._network.load):
            raise ServerError("500: a load was not answered")
        metadata = self._network.lake.tables[identifier]
        self._actor.tell(f"loads {identifier[1]} at sequence number {metadata.last_sequence_number}")
        self.read[identifier] = metadata.last_sequence_number
        return Table(identifier, metadata, "memory:///metadata.json", store_of(self._actor, self._network), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        self._actor.pause()
        commit = Commit((table.name()[0], table.name()[1]), requirements, updates)
        network, name = self._network, table.name()[1]
        if (refusal := network.refusing.get(commit.path)) and refusal.commits:
            refusal.commits -= 1
            self._actor.tell(f"commit to {name}: {refusal.error.__name__}, and not for the last time")
            raise refusal.error("a table refuses commits")
        answer = self._actor.stage.random.choice(ANSWERS) if self._actor.stage.chance(network.commit) else "given"
        self._actor.tell(f"commit to {name}: {answer}")
        match answer:
            case "refused":
                raise CommitFailedException("409: somebody was faster")
            case "unavailable":
                raise ServiceUnavailableError("503")
            case "late":
                network.on_their_way.append((commit, self._author))
                raise TimeoutError("no answer")
        metadata = network.apply(commit, self._author)
        match answer:
            case "lost":
                raise CommitStateUnknownException("504")
            case "lost as a conflict":
                raise CommitFailedException("409: a resent request met its own commit")
            case "twice":
                network.on_their_way.append((commit, self._author))
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location="memory:///metadata.json")


def store_of(actor: Actor, network: Network) -> StoreIO:
    """One process's connection to the object store. A call that fails may have been executed."""

    def boundary(action: str, location: str, execute: Callable[[], object]) -> None:
        actor.pause()
        fails = actor.stage.chance(network.store)
        if not fails or actor.stage.chance(0.5):
            execute()
        if fails:
            actor.tell(f"{action} {location}: fails")
            raise OSError(f"{action} {location}: AWS Error NETWORK_CONNECTION")
        if action == "DELETE":
            actor.tell(f"deletes {location}")

    return StoreIO(network.lake.objects, boundary)
