"""Where a benchmark's tables are: a directory, or the real servers of the tests."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.parts.process_tree import children
from fixtures.collection import NAMESPACE
from fixtures.conversation import CONFIG
from support.jars import jars
from support.servers.endpoint_configs import on_s3, rest
from support.servers.rest_catalog import rest_catalog_on_s3
from support.servers.s3_server import versitygw, versitygw_server

S3_SERVER: Final = "S3 server"
REST_CATALOG: Final = "REST catalog"


@dataclass(frozen=True)
class Lake:
    """The endpoint config for it, a catalog that sees what has landed there, and the processes of its servers."""

    config: Any
    catalog: Callable[[], Catalog]
    servers: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def lake(catalog: str, directory: Path) -> Iterator[Lake]:
    """The Local catalog in the directory, where the connector runs; or Apache's REST catalog server with an S3 server
    behind it."""
    if catalog == "local":
        warehouse = directory / "warehouse"
        yield Lake(
            CONFIG, lambda: SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
        )
        return
    for name in ("s3", "rest"):
        (directory / name).mkdir()
    with (
        versitygw_server(versitygw(), directory / "s3") as s3,
        rest_catalog_on_s3(jars("rest-catalog"), directory / "rest", s3) as server,
    ):
        started = children(os.getpid())
        servers = {S3_SERVER: started["versitygw"], REST_CATALOG: started["java"]}
        yield Lake(on_s3(s3, server.bucket, NAMESPACE, rest(server.uri)), server.client, servers)
