"""The image, built by the repository's own scripts, and containers that tests speak to as they speak to processes."""

import io
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import docker
import pytest

from support.jars import leave_out
from support.repository import REPOSITORY
from support.sessions.connector_process import Launch, Process

# Side by side they would only wait for each other, and each would start an engine.
IMAGE: Final = (pytest.mark.image, pytest.mark.xdist_group("image"))
STDOUT: Final = 1
HAS_ENDED: Final = (404, 409)  # and is removed, or not
# As strict as an operator may be. Without a network no host has an address, its own name included.
CONFINED: Final[Mapping[str, Any]] = {
    "network_mode": "none",
    "read_only": True,
    "tmpfs": {"/tmp": ""},
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}


@dataclass(frozen=True)
class Image:
    """The image, and the engine that has it."""

    engine: Any
    id: str

    @property
    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = self.engine.images.get(self.id).attrs
        return attributes

    def launch(self, **options: Any) -> Launch:
        """Containers of it instead of processes, confined but for the engine's options that are given."""

        def launch(module: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> Process:
            own = {
                "command": list(module[1:]),
                "volumes": [f"{directory}:{directory}"],
                "working_dir": str(directory),
                "environment": dict(environment),
                "user": _allow(directory),
            }
            return Container(self.engine, self.id, log, {**CONFINED, **own, **options})

        return launch

    def run(self, *command: str, **options: Any) -> tuple[int, str]:
        """The exit status of a command, and all that it printed."""
        container = self.engine.containers.create(self.id, list(command), **{**CONFINED, **options})
        try:
            container.start()
            status = int(container.wait()["StatusCode"])
            return status, container.logs().decode()
        finally:
            container.remove(force=True)


class Container:
    """A container with an open input, as subprocess.Popen has it of a process."""

    def __init__(self, engine: Any, image: str, log: Path, options: Mapping[str, Any]) -> None:
        self.container = engine.containers.create(image, stdin_open=True, **options)
        self._attached = self.container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._connection: socket.socket = self._attached._sock
        self._connection.settimeout(None)
        self._status: int | None = None
        self.stdin: IO[bytes] = io.BufferedWriter(_Input(self._connection))
        reader, writer = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(reader, "rb")
        self._output = threading.Thread(target=_separate, args=(self._connection, writer, log), daemon=True)
        self._output.start()
        self.container.start()

    @property
    def pid(self) -> int:
        """Of its first process, as the engine's machine sees it."""
        self.container.reload()
        return int(self.container.attrs["State"]["Pid"])

    def send_signal(self, number: int, /) -> None:
        self.container.kill(number)

    def kill(self) -> None:
        try:
            self.container.kill()
        except docker.errors.APIError as error:
            if error.status_code not in HAS_ENDED:
                raise

    def wait(self, timeout: float | None = None) -> int:
        """Its status; the container is removed."""
        if self._status is None:
            self._status = int(self.container.wait(timeout=timeout)["StatusCode"])
            self._output.join()
            # The answer that the socket came with holds it open, too.
            for part in (self._attached._response, self._attached, self._connection):
                part.close()
            self.container.remove()
        return self._status


class _Input(io.RawIOBase):
    """Writes to a container's input, and ends it when closed: what it prints is still to come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, some: Any) -> int:
        try:
            self._connection.sendall(some)
        except ConnectionResetError as error:
            raise BrokenPipeError from error
        return len(some)

    def close(self) -> None:
        if not self.closed:
            with suppress(OSError):  # it has ended
                self._connection.shutdown(socket.SHUT_WR)
        super().close()


def _separate(connection: socket.socket, stdout: int, log: Path) -> None:
    """What a container prints comes in frames, of which each says whether it is stdout's or stderr's."""
    with connection.makefile("rb") as frames, os.fdopen(stdout, "wb", buffering=0) as out, log.open("ab", 0) as err:
        while header := frames.read(8):
            target = out if header[0] == STDOUT else err
            target.write(frames.read(int.from_bytes(header[4:], "big")))


def _allow(directory: Path) -> str:
    """Who may write to a directory of ours: root lets the image's own user, as everybody, others only themselves."""
    if os.getuid():
        return f"{os.getuid()}:{os.getgid()}"
    directory.chmod(0o777)
    return ""


@contextmanager
def built_image() -> Iterator[Image]:
    """The image of this working copy. CI starts an engine for it; elsewhere it is left out where none answers."""
    script = REPOSITORY / "scripts" / "engine"
    engine = subprocess.run(
        [script, "start" if os.environ.get("CI") == "true" else "find"], capture_output=True, text=True, check=False
    )
    if engine.returncode:
        leave_out(f"needs a container engine: {engine.stderr.strip()}")
    built = subprocess.run([REPOSITORY / "scripts" / "image"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    with closing(docker.DockerClient(base_url=engine.stdout.strip(), timeout=600)) as client:
        yield Image(client, built.stdout.strip())
