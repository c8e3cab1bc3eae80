"""A real S3 server, versitygw, that checks every signature and keeps its objects in a temporary directory."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import boto3
from pyiceberg.io import S3_ACCESS_KEY_ID, S3_ENDPOINT, S3_REGION, S3_SECRET_ACCESS_KEY

from connector.config.credentials import AwsCredentials
from connector.config.secret import Secret
from support.jars import go_program
from support.servers.certificate import Certificate
from support.servers.server_process import free_address, running


@dataclass(frozen=True)
class Keys:
    """A user's way in."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def drawn(cls) -> Self:
        return cls(secrets.token_hex(8), secrets.token_hex(16))


def credentials(keys: Keys, token: str = "") -> AwsCredentials:
    return AwsCredentials(keys.access_key_id, Secret(keys.secret_access_key), Secret(token) if token else None)


@dataclass(frozen=True)
class S3Server:
    """A running server; its root's keys may do anything."""

    program: Path
    endpoint: str
    root: Keys
    region: str = "us-east-1"

    def new_bucket(self, ending: str = "") -> str:
        name = f"bucket-{secrets.token_hex(4)}{ending}"
        with self.client() as client:
            client.create_bucket(Bucket=name)
        return name

    def new_user_of(self, bucket: str, *actions: str) -> Keys:
        """The keys of a new user who may do this in the bucket, and nothing else; other users may do nothing there."""
        user = self.new_user()
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        self.allow(user, bucket, {"Effect": "Allow", "Action": actions, "Resource": resources})
        return user

    def allow(self, user: Keys, bucket: str, *statements: dict[str, Any]) -> None:
        """Let the user do this with the bucket, and no other user anything."""
        of_user = [{**statement, "Principal": {"AWS": [user.access_key_id]}} for statement in statements]
        with self.client() as client:
            client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": of_user}))

    def new_user(self, role: str = "user") -> Keys:
        """The keys of a new user: an "admin" may use every bucket, a "user" what a bucket's policy allows."""
        user = Keys.drawn()
        names = ("--access", user.access_key_id, "--secret", user.secret_access_key)
        self._administer("create-user", "--role", role, *names)
        return user

    def delete_user(self, user: Keys) -> None:
        self._administer("delete-user", "--access", user.access_key_id)

    def _administer(self, *command: str) -> None:
        subprocess.run(
            [str(self.program), "admin", *command],
            env={
                **os.environ,
                "ADMIN_ENDPOINT_URL": self.endpoint,
                "ADMIN_REGION": self.region,
                "ADMIN_ACCESS_KEY_ID": self.root.access_key_id,
                "ADMIN_SECRET_ACCESS_KEY": self.root.secret_access_key,
            },
            check=True,
            capture_output=True,
        )

    def file_properties(self) -> dict[str, str]:
        """By which PyIceberg reads and writes files here."""
        return {
            S3_ENDPOINT: self.endpoint,
            S3_REGION: self.region,
            S3_ACCESS_KEY_ID: self.root.access_key_id,
            S3_SECRET_ACCESS_KEY: self.root.secret_access_key,
        }

    def client(self) -> "closing[Any]":
        return closing(
            boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id=self.root.access_key_id,
                aws_secret_access_key=self.root.secret_access_key,
                region_name=self.region,
            )
        )


def versitygw() -> Path:
    return go_program("versitygw", "an S3 server")


@contextmanager
def versitygw_server(program: Path, directory: Path, certificate: Certificate | None = None) -> Iterator[S3Server]:
    """With a certificate it speaks TLS."""
    address = free_address()
    server = S3Server(program, f"{'https' if certificate else 'http'}://{address}", Keys.drawn())
    # What it knows of objects beside their bytes goes next to them: no file system needs extended attributes.
    data, sidecar, users = directory / "data", directory / "sidecar", directory / "users"
    for path in (data, sidecar, users):
        path.mkdir(parents=True)
    command = [str(program), "--port", address, "--region", server.region, "--quiet", "--iam-dir", str(users)]
    if certificate:
        command += ["--cert", str(certificate.certificate), "--key", str(certificate.key)]
    command += ["posix", "--sidecar", str(sidecar), str(data)]
    keys = {"ROOT_ACCESS_KEY": server.root.access_key_id, "ROOT_SECRET_KEY": server.root.secret_access_key}
    with running(command, keys, server.endpoint, directory / "server.log"):
        yield server
