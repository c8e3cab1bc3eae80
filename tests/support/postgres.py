"""A real PostgreSQL server with a database of its own, on a free loopback port."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
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
    _start: Callable[[], None] = field(repr=False)
    _stop: Callable[[], None] = field(repr=False)

    @contextmanager
    def down(self) -> Iterator[None]:
        self._stop()
        try:
            yield
        finally:
            self._start()

    @property
    def uri(self) -> str:
        return f"postgresql://{USER}@{self.address}/postgres"

    def with_password(self, uri: str) -> str:
        """As PyIceberg wants it."""
        return uri.replace(f"postgresql://{USER}@", f"postgresql+psycopg://{USER}:{self.password}@")

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
def postgres_server(programs: Path, directory: Path) -> Iterator[Postgres]:
    """Its log is in the directory."""
    address = free_address()
    host, port = address.split(":")
    password = secrets.token_hex(8)
    # It refuses to run as root, and its own user may not enter pytest's directories.
    user = "nobody" if os.geteuid() == SUPERUSER else None
    home = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user:
        shutil.chown(home, user)
    of_user = home / "password"
    of_user.write_text(password)
    of_user.chmod(0o644)
    options = f"-c listen_addresses={host} -c port={port} -c unix_socket_directories={home} -c fsync=off"

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", str(home / "data"), *arguments]
        with (directory / "server.log").open("ab") as log:
            subprocess.run(command, user=user, cwd=home, check=True, stdout=log, stderr=log)

    run("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={of_user}")
    start, stop = (
        partial(run, "pg_ctl", "-w", "-o", options, "start"),
        partial(run, "pg_ctl", "-m", "immediate", "stop"),
    )
    start()
    try:
        yield Postgres(address, password, start, stop)
    finally:
        stop()
        shutil.rmtree(home)
