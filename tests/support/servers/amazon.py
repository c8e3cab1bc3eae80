"""Stand-ins for two of Amazon's services that verify every signature: S3 Tables' REST catalog, in front of a REST
catalog server, and the STS that lets a role be assumed."""

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Final, Protocol, TypeAlias
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.servers.catalog_gateway import Json, Sent, refusal, serving
from support.servers.fault_proxy import GENUINE, Fault, FaultProxy, Request, fault_proxy
from support.servers.key_vendor import EXPIRES_AT_MS
from support.servers.s3_server import Keys, S3Server
from support.servers.server_process import free_address
from support.servers.server_thread import QuietHandler, in_thread

REGION: Final = "us-east-1"
TABLE_BUCKET: Final = f"arn:aws:s3tables:{REGION}:123456789012:bucket/lake"
ROLE: Final = "arn:aws:iam::123456789012:role/flow"
EXTERNAL_ID: Final = "agreed-upon"

SecretOf: TypeAlias = Callable[[str], str | None]


def role_credentials(user: Keys) -> dict[str, Json]:
    """The config's, with which this user assumes the role."""
    return {
        "auth_type": "AWSRole",
        "aws_role_arn": ROLE,
        "external_id": EXTERNAL_ID,
        "role_session_name": "lake",
        "awsAccessKeyId": user.access_key_id,
        "awsSecretAccessKey": user.secret_access_key,
    }


def is_signed(sent: Sent, service: str, secret_of: SecretOf) -> bool:
    """Whether the request carries the signature that AWS would compute for it."""
    scheme, _, rest = sent.headers.get("Authorization", "").partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(",")) if scheme == "AWS4-HMAC-SHA256" else {}
    key_id, *scope = parts.get("Credential", "").split("/")
    secret = secret_of(key_id)
    if secret is None or scope[1:3] != [REGION, service]:
        return False
    url = urlsplit(sent.path)
    names = parts["SignedHeaders"].split(";")
    received = {name.lower(): value for name, value in sent.headers.items()}
    request = AWSRequest(
        method=sent.method,
        url=f"http://{received['host']}{url.path}",
        params=dict(parse_qsl(url.query, keep_blank_values=True)),
        data=sent.body,
        headers={name: received[name] for name in names},
    )
    request.context["timestamp"] = received["x-amz-date"]
    auth = SigV4Auth(Credentials(key_id, secret), service, REGION)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return bool(parts["Signature"] == signature)


# Which actions of S3 Tables a request for this asks for, as AWS lists them: by its method and the path after the
# prefix.
ACTIONS: Final[Sequence[tuple[str, str, Collection[str]]]] = (
    ("GET|HEAD", "namespaces/[^/]+", {"GetNamespace"}),
    ("POST", "namespaces", {"CreateNamespace"}),
    ("GET", "namespaces/[^/]+/tables", {"ListTables"}),
    ("POST", "namespaces/[^/]+/tables", {"CreateTable", "PutTableData"}),
    ("GET", "namespaces/[^/]+/tables/[^/]+", {"GetTableMetadataLocation", "GetTableData"}),
    (
        "POST",
        "namespaces/[^/]+/tables/[^/]+",
        {"UpdateTableMetadataLocation", "PutTableData", "GetTableData"},
    ),
    ("DELETE", "namespaces/[^/]+/tables/[^/]+", {"DeleteTable"}),
)


@dataclass
class S3Tables:
    """Places tables itself, as S3 Tables does, in a bucket of its own, and drops none without its files."""

    uri: str
    secret_of: SecretOf
    bucket: str
    signed: int = 0
    actions: set[str] = field(default_factory=set)

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        if not is_signed(sent, "s3tables", self.secret_of):
            return HTTPStatus.FORBIDDEN, refusal(HTTPStatus.FORBIDDEN, "The request signature does not match.")
        self.signed += 1
        prefix = quote(TABLE_BUCKET, safe="")
        url = urlsplit(sent.path)
        if url.path == "/iceberg/v1/config":
            if dict(parse_qsl(url.query)) != {"warehouse": TABLE_BUCKET}:
                return HTTPStatus.NOT_FOUND, refusal(HTTPStatus.NOT_FOUND, "no such table bucket")
            self.actions.add("GetTableBucket")
            return HTTPStatus.OK, {"defaults": {}, "overrides": {"prefix": prefix}}
        asked_for = url.path.removeprefix(f"/iceberg/v1/{prefix}/")
        found = [of for by, path, of in ACTIONS if re.fullmatch(by, sent.method) and re.fullmatch(path, asked_for)]
        if not found:
            return HTTPStatus.NOT_FOUND, refusal(HTTPStatus.NOT_FOUND, "no such operation")
        self.actions.update(*found)
        if sent.method == "DELETE" and "/tables/" in url.path and url.query != "purgeRequested=true":
            return HTTPStatus.BAD_REQUEST, refusal(HTTPStatus.BAD_REQUEST, "tables can only be dropped with purge")
        path = sent.path.replace(f"/iceberg/v1/{prefix}/", "/v1/", 1)
        if sent.method != "POST" or not url.path.endswith("/tables"):
            return replace(sent, path=path)
        asked = json.loads(sent.body)
        if asked.get("location"):
            return HTTPStatus.BAD_REQUEST, refusal(HTTPStatus.BAD_REQUEST, "a location cannot be chosen")
        placed = {**asked, "location": f"s3://{self.bucket}/{uuid.uuid4()}"}
        return replace(sent, path=path, body=json.dumps(placed).encode())

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@contextmanager
def s3_tables(upstream: str, secret_of: SecretOf, bucket: str) -> Iterator[S3Tables]:
    address = free_address()
    gateway = S3Tables(f"http://{address}", secret_of, bucket)
    with serving(gateway, address, upstream):
        yield gateway


def in_table_buckets(request: Request) -> Fault:
    """What S3 Tables does with a request for an object: it lists none, and lets nobody delete one."""
    url = urlsplit(request.path)
    asked = parse_qs(url.query, keep_blank_values=True)
    lists = request.method == "GET" and not url.path.strip("/").partition("/")[2]
    deletes = "delete" in asked or (request.method == "DELETE" and "uploadId" not in asked)
    return Fault(0, HTTPStatus.METHOD_NOT_ALLOWED) if lists or deletes else GENUINE


@contextmanager
def hidden_objects(s3: S3Server) -> Iterator[FaultProxy]:
    """S3 as it answers those who may not list the whole bucket: an object that is not there is forbidden, not missing.

    Amazon documents this for GetObject and HeadObject. Neither versitygw nor MinIO do it for users who have keys.
    """
    with s3.client() as client, fault_proxy(s3.endpoint) as running:

        def hide(request: Request) -> Fault:
            bucket, _, key = unquote(urlsplit(request.path).path).strip("/").partition("/")
            if request.method not in ("GET", "HEAD") or not key:
                return GENUINE
            listed = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
            is_there = [found["Key"] for found in listed.get("Contents", ())] == [key]
            return GENUINE if is_there else Fault(0, HTTPStatus.FORBIDDEN)

        running.choose = hide
        yield running


class Vendor(Protocol):
    """Has keys for an S3 server that do not live for long."""

    @property
    def s3(self) -> S3Server: ...

    def vend(self) -> Mapping[str, str]: ...


@dataclass
class Sts:
    """Lets the role be assumed by one user who knows the external id, for as long as the vendor's keys live."""

    uri: str
    user: Keys
    vendor: Vendor
    sessions: list[str] = field(default_factory=list)  # their names

    def answer(self, sent: Sent) -> tuple[HTTPStatus, str]:
        form = {name: values[0] for name, values in parse_qs(sent.body.decode()).items()}
        if not is_signed(sent, "sts", {self.user.access_key_id: self.user.secret_access_key}.get):
            return HTTPStatus.FORBIDDEN, _error("SignatureDoesNotMatch", "Check your AWS Secret Access Key.")
        asked = (form.get("Action"), form.get("RoleArn"), form.get("ExternalId"))
        if asked != ("AssumeRole", ROLE, EXTERNAL_ID):
            return HTTPStatus.FORBIDDEN, _error("AccessDenied", "not authorized to perform: sts:AssumeRole")
        self.sessions.append(form["RoleSessionName"])
        return HTTPStatus.OK, _assumed(self.vendor.vend())


def _error(code: str, message: str) -> str:
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<ErrorResponse>{error}</ErrorResponse>"


def _assumed(keys: Mapping[str, str]) -> str:
    ends = datetime.fromtimestamp(int(keys[EXPIRES_AT_MS]) / 1000, UTC).isoformat()
    return (
        "<AssumeRoleResponse><AssumeRoleResult><Credentials>"
        f"<AccessKeyId>{keys['s3.access-key-id']}</AccessKeyId>"
        f"<SecretAccessKey>{keys['s3.secret-access-key']}</SecretAccessKey>"
        f"<SessionToken>{keys.get('s3.session-token', '')}</SessionToken><Expiration>{ends}</Expiration>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )


@contextmanager
def sts(user: Keys, vendor: Vendor) -> Iterator[Sts]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            sent = Sent(self.command, self.path, dict(self.headers.items()), self.read_body())
            status, answer = running.answer(sent)
            self.respond(status, answer.encode(), {"Content-Type": "text/xml"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Sts(f"http://127.0.0.1:{server.server_port}", user, vendor)
    with in_thread(server):
        yield running
