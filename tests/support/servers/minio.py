"""MinIO: an S3 server with an STS of its own, whose users and sessions may do what their policies say and nothing
else."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from support.jars import go_program
from support.servers.key_vendor import EXPIRES_AT_MS
from support.servers.s3_server import Keys, S3Server
from support.servers.server_process import free_address, running

Json: TypeAlias = Any

ANY_ROLE: Final = "arn:aws:iam::123456789012:role/any"  # a session is its user's, whatever role is named
SHORTEST_SESSION: Final = "15m"
PBKDF2_AES_GCM: Final = b"\x02"
PBKDF2_ROUNDS: Final = 8192


@dataclass(frozen=True)
class Minio:
    """A running server."""

    s3: S3Server

    def new_user(self, *statements: Json) -> Keys:
        """The keys of a new user with this policy."""
        user = Keys.drawn()
        secret = json.dumps({"secretKey": user.secret_access_key, "status": "enabled"}).encode()
        sealed = _sealed(self.s3.root.secret_access_key, secret)
        self._administer("add-user", {"accessKey": user.access_key_id}, sealed)
        self.allow(user, *statements)
        return user

    def allow(self, user: Keys, *statements: Json) -> None:
        """Let the user, and all of their sessions, do this from now on and nothing else."""
        name = f"of-{user.access_key_id}"
        self._administer("add-canned-policy", {"name": name}, _policy(statements).encode())
        of_user = {"policyName": name, "userOrGroup": user.access_key_id, "isGroup": "false"}
        self._administer("set-user-or-group-policy", of_user, b"")

    def session(self, user: Keys, ends: datetime) -> tuple[Keys, str]:
        """Keys and token of a session that may do what the user may, until that moment."""
        until = {"DateLessThan": {"aws:CurrentTime": ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
        anything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"], "Condition": until}
        with closing(
            boto3.client(
                "sts",
                endpoint_url=self.s3.endpoint,
                aws_access_key_id=user.access_key_id,
                aws_secret_access_key=user.secret_access_key,
                region_name=self.s3.region,
            )
        ) as client:
            answer = client.assume_role(RoleArn=ANY_ROLE, RoleSessionName="any", Policy=_policy([anything]))
        issued = answer["Credentials"]
        return Keys(issued["AccessKeyId"], issued["SecretAccessKey"]), issued["SessionToken"]

    def _administer(self, command: str, parameters: Mapping[str, str], body: bytes) -> None:
        url = f"{self.s3.endpoint}/minio/admin/v3/{command}?{urlencode(parameters)}"
        request = AWSRequest("PUT", url, data=body)
        root = Credentials(self.s3.root.access_key_id, self.s3.root.secret_access_key)
        S3SigV4Auth(root, "s3", self.s3.region).add_auth(request)
        with urlopen(Request(url, body, dict(request.headers.items()), method="PUT")):
            pass


@dataclass
class SessionVendor:
    """Sessions of one user that end after seconds: MinIO's own last for a quarter of an hour and longer."""

    minio: Minio
    user: Keys
    lifetime: timedelta
    tokens: list[str] = field(default_factory=list)
    ends: list[datetime] = field(default_factory=list)

    @property
    def s3(self) -> S3Server:
        return self.minio.s3

    def vend(self) -> Mapping[str, str]:
        ends = datetime.now(UTC).replace(microsecond=0) + self.lifetime
        keys, token = self.minio.session(self.user, ends)
        self.tokens.append(token)
        self.ends.append(ends)
        return {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
            "s3.session-token": token,
            EXPIRES_AT_MS: str(int(ends.timestamp() * 1000)),
        }

    def expired(self) -> int:
        """How many of them have ended."""
        return sum(ends < datetime.now(UTC) for ends in self.ends)


def minio() -> Path:
    return go_program("minio", "an S3 server that has roles", "--all-tests")


@contextmanager
def minio_server(program: Path, directory: Path) -> Iterator[Minio]:
    address = free_address()
    server = Minio(S3Server(program, f"http://{address}", Keys.drawn()))
    command = [
        str(program),
        "server",
        str(directory / "data"),
        "--address",
        address,
        "--console-address",
        free_address(),
    ]
    settings = {
        "MINIO_ROOT_USER": server.s3.root.access_key_id,
        "MINIO_ROOT_PASSWORD": server.s3.root.secret_access_key,
        "MINIO_STS_DURATION": SHORTEST_SESSION,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "HOME": str(directory),
    }
    with running(command, settings, f"{server.s3.endpoint}/minio/health/cluster", directory / "server.log"):
        yield server


def _policy(statements: Sequence[Json]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _sealed(password: str, text: bytes) -> bytes:
    """As MinIO's administrators send secrets: a salt, the cipher's number, a nonce, and one fragment of ciphertext."""
    salt, nonce = os.urandom(32), os.urandom(8)
    cipher = AESGCM(pbkdf2_hmac("sha256", password.encode(), salt, PBKDF2_ROUNDS, 32))
    beginning, fragment = (nonce + number.to_bytes(4, "little") for number in (0, 1))
    last = b"\x80" + cipher.encrypt(beginning, b"", b"")
    return salt + PBKDF2_AES_GCM + nonce + cipher.encrypt(fragment, text, last)
