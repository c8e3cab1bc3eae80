"""A stand-in for AWS Glue's REST endpoint, in front of a REST catalog server: it verifies every signature."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from support.servers.amazon import is_signed
from support.servers.catalog_gateway import Sent, refusal, serving
from support.servers.s3_server import Keys
from support.servers.server_process import free_address

Json: TypeAlias = Any

ACCOUNT: Final = "123456789012"
PREFIX: Final = f"catalogs/{ACCOUNT}"


@dataclass
class GlueRest:
    """Takes one user's keys, has no views, and never drops a table's files with it."""

    uri: str
    user: Keys
    optimizers: dict[tuple[str, str, str], Json] = field(default_factory=dict)  # by namespace, table and type

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        if not is_signed(sent, "glue", {self.user.access_key_id: self.user.secret_access_key}.get):
            return HTTPStatus.FORBIDDEN, refusal(HTTPStatus.FORBIDDEN, "The request signature does not match.")
        if sent.headers.get("X-Amz-Target") == "AWSGlue.GetTableOptimizer":
            return self._read_optimizer(json.loads(sent.body))
        url = urlsplit(sent.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/iceberg/v1/config":
            if asked != {"warehouse": ACCOUNT}:
                return HTTPStatus.NOT_FOUND, refusal(HTTPStatus.NOT_FOUND, "no such catalog")
            return HTTPStatus.OK, {"defaults": {}, "overrides": {"prefix": PREFIX}}
        if "/views/" in url.path or asked.get("purgeRequested", "false") != "false":
            return HTTPStatus.BAD_REQUEST, refusal(HTTPStatus.BAD_REQUEST, "not supported")
        return replace(sent, path=sent.path.replace(f"/iceberg/v1/{PREFIX}/", "/v1/", 1))

    def _read_optimizer(self, asked: Json) -> tuple[HTTPStatus, Json]:
        place = (asked["DatabaseName"], asked["TableName"], asked["Type"])
        if asked["CatalogId"] != ACCOUNT or place not in self.optimizers:
            return HTTPStatus.BAD_REQUEST, {"__type": "EntityNotFoundException", "Message": "no optimizer"}
        return HTTPStatus.OK, {"TableOptimizer": {"type": asked["Type"], "configuration": self.optimizers[place]}}

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@contextmanager
def glue_rest(upstream: str, user: Keys) -> Iterator[GlueRest]:
    address = free_address()
    gateway = GlueRest(f"http://{address}", user)
    with serving(gateway, address, upstream):
        yield gateway
