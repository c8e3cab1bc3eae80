"""What a run leaves where others may look: the environment and command line of its processes, and its files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from support.processes import marked


def of_processes(mark: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Of the living processes of a run: what anybody on the machine may see of them, and what their user may."""
    for process in marked(dict(mark)):
        for name in ("cmdline", "environ"):
            yield f"{name} of process {process}", Path(f"/proc/{process}/{name}").read_bytes()


def of_files(directory: Path) -> Iterator[tuple[str, bytes]]:
    for file in directory.rglob("*"):
        if file.is_file():
            yield str(file.relative_to(directory)), file.read_bytes()


def exposed(leftovers: Iterable[tuple[str, bytes]], secrets: Iterable[str]) -> list[str]:
    """Where one of the secrets can be read."""
    wanted = [secret.encode() for secret in secrets]
    return [place for place, content in leftovers if any(secret in content for secret in wanted)]
