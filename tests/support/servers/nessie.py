"""Nessie as a REST catalog: a real server in a process of its own, with its branches in memory and its tables in S3."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from support.jars import jars
from support.servers.java_25 import java_25
from support.servers.rest_catalog import JAVA_OPTIONS, RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address, running

PATH: Final = "/iceberg"  # of the REST catalog
STORE: Final = "nessie.catalog.service.s3.default-options"


@contextmanager
def nessie_server(directory: Path, s3: S3Server) -> Iterator[RestCatalogOnS3]:
    """A server on a free loopback port. Without its parts, the test is left out."""
    [jar] = jars("nessie").glob("*.jar")
    address, of_managers, bucket = free_address(), free_address(), s3.new_bucket()
    settings = {
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{bucket}/",
        f"{STORE}.endpoint": s3.endpoint,
        f"{STORE}.region": s3.region,
        f"{STORE}.path-style-access": "true",
        f"{STORE}.request-signing-enabled": "false",
        f"{STORE}.access-key": "urn:nessie-secret:quarkus:keys",
        "keys.name": s3.root.access_key_id,
        "keys.secret": s3.root.secret_access_key,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": address.rpartition(":")[2],
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": of_managers.rpartition(":")[2],
    }
    properties = (f"-D{name}={value}" for name, value in settings.items())
    command = [str(java_25()), *JAVA_OPTIONS, *properties, "-jar", str(jar)]
    uri = f"http://{address}{PATH}"
    with running(command, {}, f"{uri}/v1/config", directory / "server.log"):
        yield RestCatalogOnS3(uri, s3, bucket)


def create_tag(server: RestCatalogOnS3, name: str) -> None:
    """Create a tag of all tables as they are now. At the server's address with its name, the catalog has these."""
    trees = f"{server.uri.removesuffix(PATH)}/api/v2/trees"
    with urlopen(f"{trees}/main") as answer:
        branch = json.dumps(json.load(answer)["reference"])
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{trees}?name={name}&type=TAG", branch.encode(), headers)):
        pass
