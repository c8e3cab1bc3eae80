"""Runs one of the tests' servers in a directory until SIGTERM. `scripts/servers` starts this process."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from local_servers import locate_record
from support.jars import jars
from support.servers.azure import ACCOUNT, azure_store, azurite
from support.servers.endpoint_configs import aws_keys, glue, rest
from support.servers.glue_server import glue_server, moto_python
from support.servers.google import fake_gcs_server, google_store
from support.servers.hive import hive_metastore
from support.servers.postgres import postgres_programs, postgres_server
from support.servers.rest_catalog import rest_catalog_on_s3, rest_catalog_server
from support.servers.s3_server import S3Server, versitygw, versitygw_server

Json: TypeAlias = Any  # the part of an endpoint config that uses the server


def start_s3(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(versitygw_server(versitygw(), directory))
    return locate_bucket(server, server.new_bucket())


def locate_bucket(server: S3Server, bucket: str) -> Json:
    place = {"bucket": bucket, "region": server.region, "s3_endpoint": server.endpoint}
    return {**place, "credentials": aws_keys(server, server.root.secret_access_key)}


def start_google(stack: ExitStack, directory: Path) -> Json:
    store = stack.enter_context(google_store(fake_gcs_server(), directory))
    place = {"storage_type": "Google Cloud Storage", "bucket": store.new_bucket(), "endpoint": store.uri}
    return {"storage": {**place, "service_account_json": store.service_account()}}


def start_azure(stack: ExitStack, directory: Path) -> Json:
    store = stack.enter_context(azure_store(azurite(), directory))
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": store.new_container(), "endpoint": store.uri}
    return {"storage": {**place, "account_key": store.key}}


def start_rest(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(rest_catalog_server(jars("rest-catalog"), directory))
    storage = {"storage_type": "Local Files", "directory": str(server.warehouse)}
    return {"catalog": rest(server.uri), "storage": storage}


def start_rest_s3(stack: ExitStack, directory: Path) -> Json:
    s3 = stack.enter_context(versitygw_server(versitygw(), directory / "s3"))
    server = stack.enter_context(rest_catalog_on_s3(jars("rest-catalog"), directory, s3))
    return {"catalog": rest(server.uri), **locate_bucket(s3, server.bucket)}


def start_glue(stack: ExitStack, directory: Path) -> Json:
    uri = stack.enter_context(glue_server(moto_python(), directory))
    return {"catalog": glue(), "environment": {"AWS_ENDPOINT_URL_GLUE": uri}}


def start_hive(stack: ExitStack, directory: Path) -> Json:
    metastore = stack.enter_context(hive_metastore(directory))
    storage = {"storage_type": "Local Files", "directory": str(metastore.warehouse)}
    return {"catalog": {"catalog_type": "Hive Metastore", "uri": metastore.uri}, "storage": storage}


def start_postgres(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(postgres_server(postgres_programs(), directory))
    return {"catalog": {"catalog_type": "SQL", "uri": server.new_database(), "password": server.password}}


SERVERS: Final[dict[str, Callable[[ExitStack, Path], Json]]] = {
    "s3": start_s3,
    "google": start_google,
    "azure": start_azure,
    "rest": start_rest,
    "rest-s3": start_rest_s3,
    "glue": start_glue,
    "hive": start_hive,
    "postgres": start_postgres,
}


def keep(directory: Path, name: str) -> None:
    """Start a server, write its config to a file, and stop the server on SIGTERM."""
    with ExitStack() as stack:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            started = SERVERS[name](stack, directory / name)
        except pytest.skip.Exception as reason:
            started = {"left out": str(reason)}
        partial = directory / name / "partial.json"
        partial.touch(mode=0o600)  # it contains credentials
        partial.write_text(json.dumps({"pid": os.getpid(), **started}, indent=2))
        partial.rename(locate_record(directory, name))
        while "left out" not in started:
            signal.pause()


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
