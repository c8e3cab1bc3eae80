"""A publication of many bindings asks a REST catalog no more than it needs to know."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from msgspec import structs

from connector.rpc.apply import apply
from connector.rpc.validate import validate
from protocol import request
from protocol.flow import Json, ValidateBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, materialization, materialization_binding
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import FaultProxy
from support.servers.rest_catalog import RestCatalogOnS3

pytestmark = pytest.mark.catalog

NAMESPACE: Final = "requests_of_publications"
ORDERS: Final = collection(ID, DOCUMENT)


@dataclass(frozen=True)
class Publisher:
    config: Json
    server: FaultProxy

    def validate(self, *tables: str) -> Counter[str]:
        bindings = tuple(ValidateBinding({"table": table, "delta_updates": True}, ORDERS) for table in tables)
        return self._count(validate, request.Validate(MATERIALIZATION, "IMAGE", self.config, bindings))

    def apply(self, *tables: str) -> Counter[str]:
        bindings = (
            structs.replace(materialization_binding(ORDERS, table=table), resource_path=(NAMESPACE, table))
            for table in tables
        )
        return self._count(apply, request.Apply(materialization(self.config, *bindings)))

    def _count(self, answer: Callable[[Any], object], message: Any) -> Counter[str]:
        self.server.seen.clear()
        answer(message)
        return Counter(f"{each.method} {PurePosixPath(each.path.partition('?')[0]).name}" for each in self.server.seen)


@pytest.fixture
def publisher(rest_on_s3: RestCatalogOnS3, rest_proxy: FaultProxy) -> Publisher:
    return Publisher(on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(rest_proxy.uri)), rest_proxy)


def test_a_publication_asks_once_for_each_table_and_for_the_namespace_of_new_ones(publisher: Publisher) -> None:
    tables = ("customers", "orders", "returns")
    looks = Counter(f"GET {name}" for name in ("config", *tables))
    assert publisher.validate(*tables) == looks + Counter([f"HEAD {NAMESPACE}"])
    created = Counter({f"HEAD {NAMESPACE}": 1, "POST namespaces": 1, "POST tables": len(tables)})
    assert publisher.apply(*tables) == looks + created

    another = looks + Counter(("GET refunds", "HEAD refunds"))  # a view may have the name
    assert publisher.validate(*tables, "refunds") == another + Counter([f"HEAD {NAMESPACE}"])
    assert publisher.apply(*tables, "refunds") == another + Counter(["POST tables"])
    assert publisher.apply(*tables, "refunds") == looks + Counter(["GET refunds"])
