"""A proxy in front of a Hive metastore that takes calls on, or answers, wrongly: on purpose, one fault a call."""

import socketserver
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from hive_metastore.ThriftHiveMetastore import Processor
from hive_metastore.ttypes import MetaException
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from connector.iceberg.catalogs.hive import NOWHERE
from connector.iceberg.catalogs.metastore import Connections, MetastoreError
from support.plans import plan
from support.servers.fault_proxy import GENUINE, Answer, Fault
from support.servers.server_thread import in_thread

SILENT: Final = TTransportException(message="silent for a test")


@dataclass(frozen=True)
class Call:
    """One call of a method of the metastore."""

    method: str
    arguments: tuple[Any, ...]


Matches: TypeAlias = Callable[[Call], bool]
CHANGE: Final = "alter_table_with_environment_context"
LOAD: Final = "get_table_req"


def is_commit(call: Call) -> bool:
    """A change of a table, and not the question whether the metastore would make it whatever the table has become."""
    return call.method == CHANGE and call.arguments[-1].properties["expected_parameter_value"] != NOWHERE


def is_load(call: Call) -> bool:
    return call.method == LOAD


class MetastoreProxy:
    """A running proxy. `choose` has a say where nothing is injected; `altered` in what is taken on."""

    def __init__(self, upstream: str) -> None:
        self.uri = ""
        self.seen: list[str] = []
        self.fired: list[Fault] = []
        self.choose: Callable[[Call], Fault] = lambda _: GENUINE
        self.altered: Callable[[Call], Call] = lambda call: call
        self._upstream = Connections([upstream], "")
        self._injected: deque[tuple[Matches, Fault, Callable[[], object]]] = deque()
        self._lock = threading.Lock()

    def inject(self, matches: Matches, fault: Fault, before: Callable[[], object] = lambda: None) -> None:
        """Do this to the first call that matches, after everything that was injected earlier; `before` is called when
        it has come and has not been taken on yet. The test fails if none comes."""
        injected = (matches, fault, before)
        self._injected.append(injected)
        plan(f"{fault} at a proxy of a metastore", lambda: not any(each is injected for each in self._injected))

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Every method of a metastore, for the reader of a client's calls."""
        return partial(self._answer, method)

    def _answer(self, method: str, *arguments: Any) -> Any:
        call = Call(method, arguments)
        fault, before = self._fault_of(call)
        before()
        call, answer = self.altered(call), None
        for _ in range(fault.forwarded):
            answer = self._forward(call, is_heard=fault.answer is Answer.GENUINE)
        match fault.answer:
            case Answer.GENUINE:
                return answer
            case HTTPStatus() as status:
                raise MetaException(f"{status.phrase}, says a test")
            case Answer.SILENCE:
                raise SILENT
            case _:
                raise TTransportException(message="dropped by a test")

    def _forward(self, call: Call, *, is_heard: bool) -> Any:
        try:
            with self._upstream as client:
                return getattr(client, call.method)(*call.arguments)
        except MetastoreError as error:
            if is_heard:
                raise MetaException(str(error)) from error

    def _fault_of(self, call: Call) -> tuple[Fault, Callable[[], object]]:
        with self._lock:
            self.seen.append(call.method)
            if self._injected and self._injected[0][0](call):
                _, fault, before = self._injected.popleft()
            else:
                fault, before = self.choose(call), lambda: None
            if fault != GENUINE:
                self.fired.append(fault)
            return fault, before


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        socket = TSocket()
        socket.setHandle(self.request)
        protocol = TBinaryProtocol(TBufferedTransport(socket))
        processor = self.server.processor  # type: ignore[attr-defined]  # of the server that is made below
        try:
            while True:
                processor.process(protocol, protocol)
        except TTransportException as end:  # either side has closed it, unless a test wants silence
            if end is SILENT:
                with suppress(OSError):
                    self.request.recv(1)  # until the client closes it


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, processor: Processor) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.processor = processor


@contextmanager
def metastore_proxy(upstream: str) -> Iterator[MetastoreProxy]:
    proxy = MetastoreProxy(upstream)
    server = _Server(Processor(proxy))
    proxy.uri = f"thrift://127.0.0.1:{server.server_address[1]}"
    with in_thread(server):
        yield proxy
