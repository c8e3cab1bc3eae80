"""A real PostgreSQL server with a database of its own, on a free loopback port."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from support.jars import leave_out
from support.server_process import free_address

USER: Final = "lake"
SUPERUSER: Final = 0


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    address: str
    password: str = field(repr=False)

    @property
    def uri(self) -> str:
        return f"postgresql://{USER}@{self.address}/postgres"

    @property
    def uri_with_password(self) -> str:
        return f"postgresql+psycopg://{USER}:{self.password}@{self.address}/postgres"

    def new_database(self) -> str:
        """Its address."""
        name = f"db_{secrets.token_hex(4)}"
        with psycopg.connect(self.uri, password=self.password, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"postgresql://{USER}@{self.address}/{name}"


def postgres_programs() -> Path:
    """The directory of its programs; without it, the test is left out (in CI it fails)."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        candidates.append(Path(found).parent)
    if not candidates:
        leave_out("needs PostgreSQL: install Debian's package postgresql")
    return candidates[0]


@contextmanager
def postgres_server(programs: Path) -> Iterator[Postgres]:
    address = free_address()
    host, port = address.split(":")
    server = Postgres(address, secrets.token_hex(8))
    # It refuses to run as root, and its own user may not enter pytest's directories.
    user = "nobody" if os.geteuid() == SUPERUSER else None
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user:
        shutil.chown(directory, user)
    data, password = directory / "data", directory / "password"
    password.write_text(server.password)
    password.chmod(0o644)

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", str(data), *arguments]
        subprocess.run(command, user=user, cwd=directory, check=True, stdout=subprocess.DEVNULL)

    run("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}")
    options = f"-c listen_addresses={host} -c port={port} -c unix_socket_directories={directory} -c fsync=off"
    run("pg_ctl", "-w", "-l", str(directory / "server.log"), "-o", options, "start")
    try:
        yield server
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(directory)
