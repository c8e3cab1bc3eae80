"""What lies between every process and the lake: it refuses, loses answers, and does things late or twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate

from connector.iceberg.commits.writers import RESET_PREFIX
from connector.iceberg.fences import fence
from simulation.actors import Stage, running
from simulation.lake import Commit, Lake, Metadata, Path
from simulation.store import StoreIO
from simulation.takeovers import Author, Takeovers
from simulation.task import TASK, Row
from simulation.weather import Weather

ANSWERS: Final = ("refused", "unavailable", "lost", "lost as a conflict", "late", "twice")


@dataclass
class Network:
    """Disturbed by the weather, until it is calm."""

    stage: Stage
    lake: Lake
    weather: Weather
    on_their_way: list[tuple[Commit, Author]] = field(default_factory=list)
    refusing: dict[Path, type[RESTError]] = field(default_factory=dict)  # tables that take no commits for a while
    takeovers: Takeovers = field(default_factory=Takeovers)
    staged: dict[str, Sequence[Row]] = field(default_factory=dict)  # by fence value
    deleting: int = 0  # processes that are about to delete what they take for left behind
    is_resetting: bool = False
    has_other_logs: bool = False  # of the same task, which should never be
    is_calm: bool = False

    def calm_down(self) -> None:
        self.is_calm = True
        self.weather = replace(self.weather, load=0.0, commit=0.0, store=0.0)
        self.refusing.clear()
        self.stage.stalls = 0.0

    def load_table(self, path: Path) -> Metadata:
        self.call(self.weather.load, f"the load of {path[1]}")
        metadata = self.lake.table(path)
        running().tell(f"loads {path[1]} at sequence number {metadata.last_sequence_number}")
        return metadata

    def call(self, rate: float, what: str) -> None:
        """A request that may fail before anything has happened."""
        running().pause()
        if self.stage.chance(rate):
            raise ServerError(f"500: {what} was not answered")

    def send(self, commit: Commit, author: Author) -> Metadata:
        actor = running()
        actor.pause()
        name = commit.path[1]
        if error := self.refusing.get(commit.path):
            actor.tell(f"commit to {name}: {error.__name__}")
            raise error("a table refuses commits")
        answer = self.stage.random.choice(ANSWERS) if self.stage.chance(self.weather.commit) else "given"
        actor.tell(f"commit to {name}: {answer}")
        match answer:
            case "refused":
                raise CommitFailedException("409: somebody was faster")
            case "unavailable":
                raise ServiceUnavailableError("503")
            case "late":
                self.on_their_way.append((commit, author))
                raise TimeoutError("no answer")
        metadata = self._apply(commit, author)
        match answer:
            case "lost":
                raise CommitStateUnknownException("504")
            case "lost as a conflict":
                raise CommitFailedException("409: a resent request met its own commit")
            case "twice":
                self.on_their_way.append((commit, author))
        return metadata

    def deliver(self) -> None:
        """A commit arrives of which nobody expects it any more."""
        late, author = self.on_their_way.pop(self.stage.random.randrange(len(self.on_their_way)))
        try:
            self._apply(late, author)
            self.stage.tell(f"the network      a late commit to {late.path[1]} is applied")
        except (CommitFailedException, NoSuchTableError, ValueError):
            self.stage.tell(f"the network      a late commit to {late.path[1]} is refused")

    def _apply(self, commit: Commit, author: Author) -> Metadata:
        metadata = self.lake.commit(commit)
        table, sequence_number = self.lake.generation(commit.path, TASK), metadata.last_sequence_number
        if value := _fence_value(commit):
            self.takeovers.commits(author, table, value, sequence_number)
        if value := _reset_value(commit):
            self.takeovers.resets(author, table, value, sequence_number)
        return metadata

    def open_store(self) -> StoreIO:
        """A connection to the object store. A call that fails may have been executed."""

        def boundary(action: str, location: str, execute: Callable[[], object]) -> None:
            actor = running()
            actor.pause()
            fails = self.stage.chance(self.weather.store)
            if not fails or self.stage.chance(0.5):
                execute()
            if fails:
                actor.tell(f"{action} {location}: fails")
                raise OSError(f"{action} {location}: AWS Error NETWORK_CONNECTION")
            if action == "DELETE":
                actor.tell(f"deletes {location}")

        return StoreIO(self.lake.objects, boundary)


def _fence_value(commit: Commit) -> str | None:
    """What a commit of ours moves the fence to."""
    summaries = [it.snapshot.summary for it in commit.updates if isinstance(it, AddSnapshotUpdate)]
    return next((summary.get("flow.fence") for summary in summaries if summary), None)


def _reset_value(commit: Commit) -> str | None:
    for update in commit.updates:
        if isinstance(update, SetPropertiesUpdate) and any(name.startswith(RESET_PREFIX) for name in update.updates):
            return next(value for name, value in update.updates.items() if name.startswith(fence.PREFIX))
    return None
