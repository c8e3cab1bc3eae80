"""A small runtime: it drives real connector processes and keeps the recovery log that they rely on."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG, WHOLE_RANGE, Row, line, load, store
from support.sessions.connector_process import CONNECTOR, Answer, ConnectorProcess, Launch, Outcome, launch_process

Json: TypeAlias = Any

LEDGER: Final = Collection(
    "acmeCo/ledger",
    "ledger",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("note", "/note", ("string",)),
    ),
)


SHARED_STATE: Final = {"name": "estuary.dev/flag/enable-runtime-v2", "value": "true"}


def merged(target: Json, patch: Json) -> Json:
    """RFC 7396, as the runtime applies it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


class Runtime:
    """A task and its log. What `log` (the connector's state) and `checkpoint` (how far the source was read) hold is
    what has committed: a crash loses everything else."""

    def __init__(
        self,
        directory: Path,
        collections: Sequence[Collection] = (LEDGER,),
        config: Mapping[str, Json] = CONFIG,
        environment: Mapping[str, str] | None = None,
        *,
        shards_share_state: bool = False,
        module: Sequence[str] = CONNECTOR,
        launch: Launch = launch_process,
    ) -> None:
        self.directory = directory
        self.collections = collections
        self.log: Json = {}
        self.checkpoint = 0
        self._environment = environment
        self._module = module
        self._launch = launch
        self.tells_apply_state = False  # one of the two runtimes does
        self._last: Json = None
        self._task: Json = {
            "name": "acmeCo/task",
            "connectorType": "IMAGE",
            "config": config,
            "bindings": [collection.open_binding() for collection in collections],
        }
        if shards_share_state:
            self._task["shardTemplate"] = {"labels": {"labels": [SHARED_STATE]}}

    def apply(self) -> Answer:
        """Publish the task: a process of its own, as the runtime has it."""
        with self._process() as connector:
            connector.send(self._apply())
            answer = connector.receive()
            assert connector.finish().status == 0, connector.log
        self.applied(answer.body)
        return answer

    def change(self, collections: Sequence[Collection]) -> None:
        """Bind these collections; `apply` publishes it."""
        self._last, self.collections = self._task, collections
        self._task = {**self._task, "bindings": [collection.open_binding() for collection in collections]}

    def configure(self, **settings: Json) -> None:
        """Set these properties of the endpoint config; `apply` publishes it."""
        self._task = {**self._task, "config": {**self._task["config"], **settings}}

    def schedule(self, schedule: Json) -> None:
        """Let the runtime commit by this schedule; `apply` publishes it."""
        self._task = {**self._task, "syncSchedule": schedule}

    def backfill(self) -> None:
        """Increment every binding's backfill; `apply` publishes it."""
        self._last = self._task
        bindings = [
            {**binding, "backfill": number, "stateKey": f"{binding['stateKey'].rpartition('.v')[0]}.v{number}"}
            for binding in self._task["bindings"]
            for number in [binding.get("backfill", 0) + 1]
        ]
        self._task = {**self._task, "bindings": bindings}

    def apply_and_fail(self) -> Outcome:
        """The same where it is not expected to succeed. If it succeeds, the process ends with its input."""
        with self._process() as connector:
            connector.send(self._apply())
            return connector.finish()

    def open(self, key_range: Json = WHOLE_RANGE, *, publish: bool = False) -> "Session":
        """Start a process and open a session on what the log holds; with `publish` the process first applies."""
        session = self.start(key_range, publish=publish)
        session.opened()
        session.acknowledge()
        return session

    def start(self, key_range: Json = WHOLE_RANGE, *, publish: bool = False) -> "Session":
        """The same without waiting for any answer. `publish` saves a test of sessions the process of the apply."""
        connector = self._process()
        requests = ([self._apply()] if publish else []) + [self._open(key_range)]
        return Session(self, connector, requests)

    def open_and_fail(self, key_range: Json = WHOLE_RANGE) -> Outcome:
        """The same where it is not expected to open. If it does, the end of its input is an error, too."""
        with self._process() as connector:
            connector.send(self._open(key_range))
            return connector.finish()

    def record(self, *answers: Json, checkpoint: int | None = None) -> None:
        """Commit the patches of every shard's answer, and the checkpoint, in one atomic write."""
        for patch in patches(answers):
            self.log = merged(self.log, patch)
        if checkpoint is not None:
            self.checkpoint = checkpoint

    def applied(self, answer: Json) -> None:
        """The task is published as it is now."""
        self.record(answer)
        self._last = None

    def _process(self) -> ConnectorProcess:
        return ConnectorProcess(self.directory, self._environment, self._module, self._launch)

    def _apply(self) -> bytes:
        request = {"materialization": self._task, "version": "1"}
        if self._last is not None:
            request["lastMaterialization"] = self._last
        if self.tells_apply_state:
            request["state"] = self.log
        return line("apply", request)

    def _open(self, key_range: Json) -> bytes:
        request = {"materialization": self._task, "version": "1", "range": key_range, "state": self.log}
        return line("open", request)


def patches(answers: Iterable[Json]) -> list[Json]:
    """What the shards' answers change in the state that they share."""
    states = [state for answer in answers if (state := answer.get("state"))]
    assert all(state["mergePatch"] is True for state in states)
    return [state["updated"] for state in states]


class Session:
    """One connector process, from open to its end. `shared` are the patches of all shards' answers before."""

    def __init__(self, runtime: Runtime, connector: ConnectorProcess, requests: Sequence[bytes]) -> None:
        self.connector = connector
        self._runtime = runtime
        self._is_published = len(requests) > 1
        connector.send(*requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connector.kill()

    def opened(self) -> Json:
        if self._is_published:
            self._runtime.applied(self.connector.expect("applied"))
        return self.connector.expect("opened")

    def load(self, *keys: Sequence[Json], binding: int = 0, packed: bool = False) -> None:
        self.connector.send(*(load(binding, key, packed=packed) for key in keys))

    def flush(self, shared: Sequence[Json] = ()) -> list[tuple[int, Json]]:
        """Return the documents that were loaded, each with its binding."""
        self._send("flush", shared)
        loaded = []
        while (answer := self.connector.receive()).kind == "loaded":
            loaded.append((answer.body["binding"], answer.body["doc"]))
        assert answer.kind == "flushed", answer
        self._record(answer.body)
        return loaded

    def store(self, *documents: Json, binding: int = 0) -> None:
        self.store_rows(*(Row(binding, document) for document in documents))

    def store_rows(self, *rows: Row, packed: bool = False) -> None:
        collections = self._runtime.collections
        self.connector.send(*(store(collections[row.binding], row, packed=packed) for row in rows))

    def send_start_commit(self, checkpoint: int = 1) -> None:
        self._send("startCommit", runtimeCheckpoint={"at": checkpoint})

    def start_commit(self, *, commits: bool = True) -> Json:
        """Stage the transaction; with `commits` the runtime's log commits it."""
        self.send_start_commit()
        answer = self.connector.expect("startedCommit")
        if commits:
            self._record(answer)
        return answer

    def send_acknowledge(self, shared: Sequence[Json] = ()) -> None:
        self._send("acknowledge", shared)

    def acknowledge(self) -> Json:
        self.send_acknowledge()
        return self.acknowledged()

    def acknowledged(self) -> Json:
        return self._record(self.connector.expect("acknowledged"))

    def transaction(self, *documents: Json) -> None:
        self.flush()
        self.store(*documents)
        self.start_commit()
        self.acknowledge()

    def stage_and_die(self, *documents: Json, commits: bool = True) -> None:
        """Leave a transaction staged that nobody has acknowledged, and end the connector's process."""
        self.flush()
        self.store(*documents)
        self.start_commit(commits=commits)
        self.connector.kill()

    def finish(self) -> Outcome:
        return self.connector.finish()

    def _send(self, kind: str, shared: Sequence[Json] = (), **body: Json) -> None:
        self.connector.send(line(kind, body | ({"statePatches": shared} if shared else {})))

    def _record(self, answer: Json) -> Json:
        self._runtime.record(answer)
        return answer
