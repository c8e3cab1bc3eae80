"""What a run leaves where others may look: the environment and command line of its processes, its files, and what Spark
shows of itself."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.request import urlopen

from support.sessions.processes import marked, new_mark

Leftover = tuple[str, bytes]

FIRST_PORT: Final = 20_000
PORTS: Final = 10_000
SPARK_PAGES: Final = ("environment/", "jobs/", "executors/", "api/v1/applications")


@dataclass(frozen=True)
class Watch:
    """A run that can be told from others, has all of its files in one directory, and says as much as it can be made
    to."""

    directory: Path
    mark: Mapping[str, str]
    spark_page: str

    @classmethod
    def over(cls, directory: Path) -> Self:
        for name in ("work", "temporary", "events"):
            (directory / name).mkdir()
        # Until Spark listens there nobody is to get this port: it is none of those that the kernel hands out.
        return cls(directory, new_mark(), f"http://127.0.0.1:{FIRST_PORT + os.getpid() % PORTS}")

    @property
    def work(self) -> Path:
        """What the run is started in."""
        return self.directory / "work"

    @property
    def environment(self) -> dict[str, str]:
        return {**self.mark, "TMPDIR": str(self.directory / "temporary"), "LOG_LEVEL": "debug"}

    @property
    def spark_settings(self) -> dict[str, str]:
        """By which Spark shows its configuration, and writes down what happens."""
        return {
            "spark.ui.enabled": "true",
            "spark.ui.port": self.spark_page.rpartition(":")[2],
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{self.directory}/events",
            "spark.eventLog.compress": "false",
        }

    def seen(self) -> list[Leftover]:
        """While Spark runs, and its tasks with it."""
        found = [*of_processes(self.mark), *of_files(self.directory), *of_pages(self.spark_page)]
        places = " ".join(place for place, _ in found)
        assert all(part in places for part in ("environ of", "cmdline of", "events/", "environment/")), places
        return found

    def left(self) -> list[Leftover]:
        """When it has ended."""
        return [*of_files(self.directory)]


def of_processes(mark: Mapping[str, str]) -> Iterator[Leftover]:
    """Of the living processes of a run: what anybody on the machine may see of them, and what their user may."""
    for process in marked(dict(mark)):
        for name in ("cmdline", "environ"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                yield f"{name} of process {process}", Path(f"/proc/{process}/{name}").read_bytes()


def of_files(directory: Path) -> Iterator[Leftover]:
    for file in directory.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file():
                yield str(file.relative_to(directory)), file.read_bytes()


def of_pages(address: str) -> Iterator[Leftover]:
    for page in SPARK_PAGES:
        with urlopen(f"{address}/{page}", timeout=60) as answer:
            yield f"{address}/{page}", answer.read()


def exposed(leftovers: Iterable[Leftover], secrets: Iterable[str]) -> list[str]:
    """Where one of the secrets can be read."""
    wanted = [secret.encode() for secret in secrets]
    return [place for place, content in leftovers if any(secret in content for secret in wanted)]
