"""A real PostgreSQL server with a database of its own, on a free loopback port."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from support.jars import leave_out
from support.servers.server_process import free_address, running
from support.sessions.processes import wait_until

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


@dataclass(frozen=True)
class _Installation:
    """The programs, and a directory whose databases they serve."""

    programs: Path
    home: Path
    address: str
    log: Path
    user: str | None

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), "-D", str(self.home / "data"), *arguments]
        with self.log.open("ab") as log:
            subprocess.run(command, user=self.user, cwd=self.home, check=True, stdout=log, stderr=log)

    @contextmanager
    def up(self) -> Iterator[None]:
        host, port = self.address.split(":")
        settings = {"listen_addresses": host, "port": port, "unix_socket_directories": self.home, "fsync": "off"}
        server = [str(self.programs / "postgres"), "-D", str(self.home / "data")]
        server += [f"--{name}={value}" for name, value in settings.items()]
        is_ready = [str(self.programs / "pg_isready"), "-q", "-h", host, "-p", port]
        with running(server, {}, f"postgresql://{self.address}", self.log, self.user or ""):
            assert wait_until(lambda: subprocess.run(is_ready, check=False).returncode == 0)
            yield
            self.run("pg_ctl", "-m", "immediate", "stop")


@contextmanager
def postgres_server(programs: Path, directory: Path) -> Iterator[Postgres]:
    """Its log is in the directory."""
    password = secrets.token_hex(8)
    # It refuses to run as root, and its own user may not enter pytest's directories.
    user = "nobody" if os.geteuid() == SUPERUSER else None
    home = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user:
        shutil.chown(home, user)
    of_user = home / "password"
    of_user.write_text(password)
    of_user.chmod(0o644)
    installed = _Installation(programs, home, free_address(), directory / "server.log", user)
    installed.run("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={of_user}")
    server = ExitStack()

    def start() -> None:
        server.enter_context(installed.up())

    start()
    try:
        yield Postgres(installed.address, password, start, server.close)
    finally:
        server.close()
        shutil.rmtree(home)
