"""A small runtime: it drives real connector processes and keeps the recovery log that they rely on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from fixtures.collection import Collection, Field
from fixtures.conversation import CONFIG, WHOLE_RANGE, Row, line, store
from support.connector_process import Answer, ConnectorProcess, Outcome

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
    """A task and its log. What `log` holds is what has committed: a crash loses everything else."""

    def __init__(
        self,
        directory: Path,
        collections: Sequence[Collection] = (LEDGER,),
        config: Mapping[str, Json] = CONFIG,
        environment: Mapping[str, str] | None = None,
        *,
        shards_share_state: bool = False,
    ) -> None:
        self.directory = directory
        self.collections = collections
        self.log: Json = {}
        self._environment = environment
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
        with ConnectorProcess(self.directory, self._environment) as connector:
            connector.send(line("apply", {"materialization": self._task, "version": "1"}))
            answer = connector.receive()
            assert connector.finish().status == 0, connector.log
        return answer

    def open(self, key_range: Json = WHOLE_RANGE) -> "Session":
        """Start a process and open a session on what the log holds."""
        return Session(self, ConnectorProcess(self.directory, self._environment), self._open(key_range))

    def open_and_fail(self, key_range: Json = WHOLE_RANGE) -> Outcome:
        """The same where it is not expected to open."""
        with ConnectorProcess(self.directory, self._environment) as connector:
            connector.send(self._open(key_range))
            return connector.wait()

    def _open(self, key_range: Json) -> bytes:
        request = {"materialization": self._task, "version": "1", "range": key_range, "state": self.log}
        return line("open", request)


class Session:
    """One connector process, from open to its end."""

    def __init__(self, runtime: Runtime, connector: ConnectorProcess, request: bytes) -> None:
        self.connector = connector
        self._runtime = runtime
        connector.send(request)
        connector.expect("opened")
        self.acknowledge()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connector.kill()

    def flush(self) -> None:
        self.connector.send(line("flush", {}))
        self._record(self.connector.expect("flushed"))

    def store(self, *documents: Json, binding: int = 0) -> None:
        collection = self._runtime.collections[binding]
        self.connector.send(*(store(collection, Row(binding, document), packed=False) for document in documents))

    def start_commit(self, *, commits: bool = True) -> Json:
        """Stage the transaction; with `commits` the runtime's log commits it."""
        self.connector.send(line("startCommit", {"runtimeCheckpoint": {"at": 1}}))
        answer = self.connector.expect("startedCommit")
        if commits:
            self._record(answer)
        return answer

    def send_acknowledge(self) -> None:
        self.connector.send(line("acknowledge", {}))

    def acknowledge(self) -> Json:
        self.send_acknowledge()
        return self._record(self.connector.expect("acknowledged"))

    def transaction(self, *documents: Json) -> None:
        self.flush()
        self.store(*documents)
        self.start_commit()
        self.acknowledge()

    def finish(self) -> Outcome:
        return self.connector.finish()

    def _record(self, answer: Json) -> Json:
        if state := answer.get("state"):
            assert state["mergePatch"] is True
            self._runtime.log = merged(self._runtime.log, state["updated"])
        return answer
