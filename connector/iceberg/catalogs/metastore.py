"""Connections to a Hive metastore: one for each use, with time limits, to the first server that accepts it."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    GetTableRequest,
    GetTablesRequest,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.iceberg.catalog_messages import first_line

DEFAULT_PORT: Final = 9083
LONGEST_ANSWER: Final = 1 << 28  # bytes: no metastore sends a longer one


class MetastoreTimeLimits(NamedTuple):
    """Seconds to wait for a connection, and for each piece of an answer."""

    connect: float
    read: float


TIME_LIMITS: Final = MetastoreTimeLimits(connect=10, read=60)


class MetastoreError(OSError):
    """The metastore did not do what it was asked to do."""


class MetastoreUnreachableError(MetastoreError):
    """There was no answer. The metastore may have done what it was asked to do, or not."""


class MetastoreRefusalError(MetastoreError):
    """The metastore refuses, and would refuse again."""


class Connections(threading.local):
    """The client that PyIceberg enters for each use. PyIceberg's own shares one connection among all threads, and has
    no time limit."""

    def __init__(self, uris: Sequence[str], user: str, limits: MetastoreTimeLimits = TIME_LIMITS) -> None:
        self._uris, self._user, self._limits = uris, user, limits
        self._open: list[Any] = []  # of this thread

    def __enter__(self) -> Any:
        last: Exception | None = None
        for uri in self._uris:
            try:
                return self._connect(uri)
            except (TTransportException, TProtocolException) as error:
                last = error
        raise MetastoreUnreachableError(str(last)) from last

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()

    def _connect(self, uri: str) -> Any:
        address = urlsplit(uri)
        socket = TSocket(address.hostname, address.port or DEFAULT_PORT)
        transport = TBufferedTransport(socket)
        socket.setTimeout(self._limits.connect * 1000)
        try:
            transport.open()
            socket.setTimeout(self._limits.read * 1000)
            client = Client(TBinaryProtocol(transport, string_length_limit=LONGEST_ANSWER))
            if self._user:
                user, *groups = self._user.split(":")
                client.set_ugi(user, groups)
        except BaseException:
            transport.close()
            raise
        self._open.append(transport)
        return _Calls(client)


class _Calls:
    """The methods of a client, with other errors: Thrift's are immutable, and a context manager that is a generator
    cannot pass them on. Those that the caller catches at once are kept.

    PyIceberg calls two methods that Hive 4 no longer has. Their successors are also in Hive 2.3.10.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        return self._call("get_table_req", GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def get_table_objects_by_name(self, dbname: str, tbl_names: Sequence[str]) -> Sequence[Table]:
        request = GetTablesRequest(dbName=dbname, tblNames=tbl_names)
        tables: Sequence[Table] = self._call("get_table_objects_by_name_req", request).tables
        return tables

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._call, method)

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._client, method)(*arguments, **named)
        except (TTransportException, TProtocolException) as error:
            raise MetastoreUnreachableError(str(error)) from error
        except (InvalidObjectException, InvalidOperationException) as error:
            raise MetastoreRefusalError(error.message) from error
        except (MetaException, TApplicationException) as error:
            raise MetastoreError(error.message) from error


def translate_errors(uri: str) -> AbstractContextManager[None]:
    """Translate the errors of requests to the metastore."""
    place = f"the Hive metastore at {uri}"
    return translate(METASTORE_ERRORS, lambda error: {"place": place, "answer": first_line(str(error)), "error": error})


METASTORE_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(MetastoreUnreachableError),
        RetryableError,
        "{place} cannot be reached: {error}. Check that it is up, that the network allows it, and /catalog/uri; it "
        "must speak Thrift without Kerberos and TLS.",
    ),
    Translation(
        is_a(MetastoreRefusalError),
        UserError,
        "{place} refuses this: {answer}. Check the names in the config.",
    ),
    Translation(
        is_a(MetastoreError, saying=("No FileSystem for scheme", "ClassNotFoundException")),
        UserError,
        "{place} cannot reach the store of the tables' files ({answer}). Give it the store's client and sign-in, as "
        "Hive's own tables there need them.",
    ),
    Translation(
        is_a(MetastoreError, saying=("Permission denied", "AccessControlException", "AccessDenied")),
        UserError,
        "{place} has no permission for this ({answer}). Give the permission to it, or to the user in "
        "/catalog/properties/ugi.",
    ),
    Translation(
        is_a(MetastoreError),
        RetryableError,
        "{place} is not able to answer now: {answer}.",
    ),
)
