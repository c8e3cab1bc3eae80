"""An apply whose process is killed with any request that it sends to its catalog: the next one finishes what it
began."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final, Protocol, TypeAlias

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from connector.config.catalog import RestCatalog
from connector.iceberg.catalogs.rest import open_rest
from connector.model.state import encode_added
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from evolution.local_task import TASK, LocalTask
from fixtures.collection import Collection, Field
from fixtures.conversation import Row, line, store
from protocol.response import Applied
from support.servers.endpoint_configs import rest
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, Request
from support.servers.rest_catalog import RestCatalogServer
from support.sessions.apply_process import ForkedApply, apply_here
from support.sessions.connector_process import ConnectorProcess

pytestmark = pytest.mark.catalog

Json: TypeAlias = Any

ID: Final = Field("id", "/id", ("integer",), exists="MUST", is_key=True)
NOTE: Final = Field("note", "/note", ("string",), exists="MUST")
QTY: Final = Field("qty", "/qty", ("integer",))
SIZE: Final = Field("size", "/size", ("integer",))
BEFORE: Final = Collection("acmeCo/orders", "orders", (ID, NOTE, QTY, SIZE))
AFTER: Final = replace(
    BEFORE,
    fields=(
        ID,
        replace(NOTE, exists="MAY"),
        replace(QTY, types=("string",)),
        SIZE,
        Field("color", "/color", ("string",)),
    ),
)
LANDED: Final = {"id": 1, "note": "first", "qty": 10, "size": 100}
STAGED: Final = {"id": 2, "note": "second", "qty": -20, "size": 200}
EXISTING: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "note", StringType(), required=True),
    NestedField(3, "qty", LongType()),
    NestedField(4, "size", IntegerType()),
    NestedField(5, "flow_document", StringType(), required=True),
)


class ApplyProcess(Protocol):
    """A process for one apply request."""

    def run(self, line: bytes, /) -> int: ...
    def kill(self) -> None: ...


class ConnectorApply:
    """The connector itself."""

    def __init__(self, directory: Path) -> None:
        self._connector = ConnectorProcess(directory)

    def run(self, line: bytes) -> int:
        self._connector.send(line)
        return self._connector.finish().status

    def kill(self) -> None:
        self._connector.process.kill()


class Publication:
    """A task whose new version makes a table in a new namespace, and has every column of another table altered, of
    which one transaction has not landed yet."""

    def __init__(self, catalog: Catalog, directory: Path) -> None:
        name = uuid.uuid4().hex[:12]
        self._catalog = catalog
        self._old = replace(BEFORE, namespace=f"shop_{name}")
        self._new = replace(AFTER, namespace=f"shop_{name}")
        self._made = replace(AFTER, table="returns", namespace=f"new_{name}")
        binding = self._old.open_binding()
        owner = Owner(TASK, binding["stateKey"])
        catalog.create_namespace(self._old.namespace)
        catalog.create_table(
            (self._old.namespace, self._old.table), EXISTING, properties={OWNER_PROPERTY: owner.encode()}
        )
        local = LocalTask(directory, catalog)
        local.landed(local.staged(binding, [_store(LANDED)]))
        self._state = encode_added([local.staged(binding, [_store(STAGED)])])

    def request(self, uri: str) -> bytes:
        config = {"namespace": "shop", "catalog": rest(uri)}
        task = {"name": TASK, "connectorType": "IMAGE", "config": config}
        new, old = [self._new.open_binding(), self._made.open_binding()], [self._old.open_binding()]
        body = {"materialization": {**task, "bindings": new}, "version": "2", "state": self._state}
        return line("apply", body | {"lastMaterialization": {**task, "bindings": old}, "lastVersion": "1"})

    def check(self) -> None:
        table = self._catalog.load_table((self._new.namespace, self._new.table))
        schema = {column.name: (str(column.field_type), column.required) for column in table.schema().fields}
        assert schema == {
            "id": ("long", True),
            "note": ("string", False),
            "qty": ("string", False),
            "size": ("long", False),
            "flow_document": ("string", True),
            "color": ("string", False),
        }
        rows = table.scan(selected_fields=("id", "note", "qty", "size", "color")).to_arrow().sort_by("id").to_pylist()
        assert rows == [{**row, "qty": str(row["qty"]), "color": None} for row in (LANDED, STAGED)]
        made = self._catalog.load_table((self._made.namespace, self._made.table))
        assert [column.name for column in made.schema().fields] == [*(f.name for f in AFTER.fields), "flow_document"]


def _store(document: Json) -> bytes:
    return store(BEFORE, Row(0, document), packed=False)


@pytest.fixture
def catalog(rest_catalog: RestCatalogServer) -> Iterator[Catalog]:
    with open_rest(RestCatalog(rest_catalog.uri, str(rest_catalog.warehouse)), {}) as opened:
        yield opened


def changes(ending: str) -> Callable[[Request], bool]:
    """The requests to such a path that change the catalog: between two changes it is the same, whichever request it is
    that is not answered. In which order a namespace and the tables are changed is not said: bindings are side by
    side."""
    return lambda request: request.method == "POST" and request.path.endswith(ending)


def is_any(_: Request) -> bool:
    return True


@pytest.mark.parametrize(
    ("start", "counts"),
    [
        pytest.param(lambda _: ForkedApply(), changes("/namespaces"), id="at-the-namespace"),
        pytest.param(lambda _: ForkedApply(), changes("/tables"), id="at-the-new-table"),
        pytest.param(lambda _: ForkedApply(), changes("/tables/orders"), id="at-the-changed-table"),
        # Two dozen processes, most of which start Spark.
        pytest.param(ConnectorApply, is_any, id="at-every-request", marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
def test_the_next_apply_finishes_what_a_killed_one_began(
    start: Callable[[Path], ApplyProcess],
    counts: Callable[[Request], bool],
    catalog: Catalog,
    proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    for moment in count(1):
        publication = Publication(catalog, tmp_path)
        was_killed = killed_with(start(tmp_path), publication.request(proxy.uri), proxy, moment, counts)
        expect_finished(publication, proxy)
        if not was_killed:
            break
    assert moment > 1, "it was never killed"


def killed_with(
    process: ApplyProcess, line: bytes, proxy: FaultProxy, moment: int, counts: Callable[[Request], bool]
) -> bool:
    """Whether the process was killed with one of its requests, or ended by itself before there were so many."""
    struck: list[Request] = []
    counted = count(1)

    def kill(request: Request) -> Fault:
        if not counts(request) or next(counted) != moment:
            return GENUINE
        struck.append(request)
        process.kill()
        return Fault(0, Answer.NONE)

    proxy.choose = kill
    status = process.run(line)
    assert status == (-SIGKILL if struck else 0)
    return bool(struck)


def expect_finished(publication: Publication, proxy: FaultProxy) -> None:
    proxy.choose = lambda _: GENUINE
    request = publication.request(proxy.uri)
    apply_here(request)
    publication.check()
    assert apply_here(request) == Applied()
    publication.check()
