"""AWS Glue's stand-in in a process of its own: moto, made as strict as Glue."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.jars import leave_out
from support.repository import REPOSITORY
from support.servers.server_process import free_address, running

STRICT_GLUE: Final = Path(__file__).with_name("strict_glue.py")


def moto_python() -> Path:
    """The Python that has moto; without it, the test is left out (in CI it fails)."""
    environment = REPOSITORY / ".cache" / "moto"
    if not (environment / "complete").exists():
        leave_out("needs AWS Glue's stand-in: run scripts/setup --tests")
    return environment / "bin" / "python"


@contextmanager
def glue_server(python: Path, directory: Path) -> Iterator[str]:
    """Runs it while the context lasts; its address."""
    address = free_address()
    # Its directory must not be searched for modules: it has a google.py and an azure.py.
    command = [str(python), "-P", str(STRICT_GLUE), address.rpartition(":")[2]]
    with running(command, {}, f"http://{address}/moto-api/", directory / "server.log"):
        yield f"http://{address}"
