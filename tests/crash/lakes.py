"""Where a task's tables are: a catalog of each kind and its files, and what may fail between them and the connector."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog

from connector.config.catalog import HIVE, HiveCatalog
from connector.config.storage import LOCAL_FILES
from connector.iceberg.catalogs.hive import open_hive
from crash import foreign
from crash.faults import Faults
from crash.wire import CatalogWire, CommittedTable, commit_fault, store_fault, table_on_glue, table_on_rest
from fixtures.conversation import CONFIG
from support.engines.readers import readers_catalog
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.fault_proxy import GENUINE, Fault, fault_proxy
from support.servers.metastore_proxy import Call, is_commit, metastore_proxy
from support.servers.s3_server import S3Server

Json: TypeAlias = Any


class Kind(StrEnum):
    LOCAL = "Local"
    REST = "REST"
    GLUE = "Glue"
    HIVE = "Hive"


@dataclass(frozen=True)
class Lake:
    """A namespace of a task's own in some catalog. `open_catalog` is the way of all others to it, past every fault."""

    kind: Kind
    namespace: str
    open_catalog: Callable[[], Catalog]
    config: Json  # the endpoint config by which the connector finds it
    environment: Mapping[str, str] = field(default_factory=dict)  # the connector's, for the same
    s3: S3Server | None = None  # that has the tables' files


@dataclass(frozen=True)
class Servers:
    """What is started when it is asked for, and then serves every lake of its kind."""

    s3: Callable[[], S3Server]
    bucket: Callable[[], str]
    rest_uri: Callable[[], str]
    glue_uri: Callable[[], str]
    hive_uri: Callable[[], str]


@contextmanager
def open_lake(kind: Kind, servers: Servers, directory: Path, faults: Faults) -> Iterator[Lake]:
    match kind:
        case Kind.LOCAL:
            # The connector's is a path within the directory where it runs.
            warehouse = directory / CONFIG["catalog"]["warehouse"]
            yield Lake(kind, CONFIG["namespace"], partial(readers_catalog, warehouse), CONFIG)
        case Kind.REST:
            rest_catalog = RestCatalog("rest", uri=servers.rest_uri(), **servers.s3().file_properties())
            with _on_s3(kind, rest_catalog, servers, servers.rest_uri(), table_on_rest, faults) as lake:
                yield lake
        case Kind.GLUE:
            s3 = servers.s3()
            keys = {
                "glue.endpoint": servers.glue_uri(),
                "glue.region": s3.region,
                "glue.access-key-id": s3.root.access_key_id,
                "glue.secret-access-key": s3.root.secret_access_key,
            }
            glue_catalog = GlueCatalog("glue", **keys, **s3.file_properties())
            with _on_s3(kind, glue_catalog, servers, servers.glue_uri(), table_on_glue, faults) as lake:
                yield lake
        case Kind.HIVE:
            with _in_hive(servers.hive_uri(), directory, faults) as lake:
                yield lake


@contextmanager
def _in_hive(uri: str, directory: Path, faults: Faults) -> Iterator[Lake]:
    namespace = f"shop_{uuid.uuid4().hex[:12]}"
    with open_hive(HiveCatalog(uri), {}, dict) as catalog, metastore_proxy(uri) as proxy:

        def choose(call: Call) -> Fault:
            if not is_commit(call):
                return GENUINE
            table = call.arguments[1]
            return commit_fault(faults, table, lambda: foreign.overtake(catalog, (namespace, table)))

        proxy.choose = choose
        config = {
            "namespace": namespace,
            "upload_interval": "PT0S",
            "catalog": {"catalog_type": HIVE, "uri": proxy.uri},
            "storage": {"storage_type": LOCAL_FILES, "directory": str(directory / "tables")},
        }
        yield Lake(Kind.HIVE, namespace, lambda: catalog, config)


@contextmanager
def _on_s3(
    kind: Kind, catalog: Catalog, servers: Servers, upstream: str, committed_table: CommittedTable, faults: Faults
) -> Iterator[Lake]:
    namespace = f"shop_{uuid.uuid4().hex[:12]}"

    def overtake(table: str) -> None:
        foreign.overtake(catalog, (namespace, table))

    with ExitStack() as running:
        running.enter_context(catalog)
        catalog_proxy = running.enter_context(fault_proxy(upstream))
        catalog_proxy.choose = CatalogWire(faults, committed_table, overtake).fault_of
        store_proxy = running.enter_context(fault_proxy(servers.s3().endpoint))
        store_proxy.choose = partial(store_fault, faults)
        by_kind = rest(catalog_proxy.uri) if kind is Kind.REST else glue()
        config = on_s3(servers.s3(), servers.bucket(), namespace, by_kind) | {"s3_endpoint": store_proxy.uri}
        yield Lake(kind, namespace, lambda: catalog, config, {"AWS_ENDPOINT_URL_GLUE": catalog_proxy.uri}, servers.s3())
