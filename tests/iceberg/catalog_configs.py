"""Endpoint configs whose catalogs tests open."""

from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.catalog import GlueCatalog, LocalCatalog, RestCatalog
from connector.config.credentials import AwsCredentials
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.host.http_time_limits import TimeLimits

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
KEYS = AwsCredentials("keyid", Secret("planted"), Secret("session"))
IMPATIENT = TimeLimits(connect=0.2, read=0.2)


def local(warehouse: Path | None, **settings: Any) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=LocalCatalog(warehouse), **settings)


def on_s3(catalog: RestCatalog | GlueCatalog, **settings: Any) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=catalog, credentials=KEYS, bucket="b", region="us-east-1", **settings)


def rest(uri: str, **settings: Any) -> RestCatalog:
    return RestCatalog(uri, "wh", **settings)
