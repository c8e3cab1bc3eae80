"""compose.yaml does what docs/docker.md says, and needs nothing but Docker."""

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from fixtures.generate import DIRECTORY
from support.pages import commands
from support.repository import REPOSITORY
from support.rows.expected_rows import expected_tables
from support.sessions.containers import IMAGE, Image

pytestmark = [*IMAGE, pytest.mark.spark, pytest.mark.catalog, pytest.mark.usefixtures("image")]

HEADING: Final = "An S3 server and a REST catalog"


@pytest.fixture(scope="module")
def lines() -> Sequence[str]:
    """The page's commands: up, check, send, query and down."""
    return commands("docker.md", HEADING)


@pytest.fixture
def run() -> Iterator[Callable[[str], str]]:
    """Runs a command of the page with the tests' engine. The containers have a project name of their own."""
    environment = {**os.environ, "COMPOSE_PROJECT_NAME": f"materialize-iceberg-{secrets.token_hex(4)}"}

    def run(command: str) -> str:
        command = command.replace("docker compose", "scripts/engine compose")
        outcome = subprocess.run(
            ["bash", "-c", command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        assert outcome.returncode == 0, (command, outcome.stdout, outcome.stderr)
        return outcome.stdout

    try:
        yield run
    finally:
        run("docker compose down --timeout 0")


@pytest.mark.slow  # builds the image of the servers: minutes of processor time
def test_the_servers_come_up_and_the_connector_finds_nothing_in_its_way(
    run: Callable[[str], str], lines: Sequence[str]
) -> None:
    up, check, *_ = lines
    run(up)
    checked = run(check)
    assert "✓ storage" in checked
    assert "All checks passed." in checked


@pytest.mark.slow  # five transactions on two servers, and five containers that start for them
def test_a_conversation_is_sent_and_its_rows_are_found(run: Callable[[str], str], lines: Sequence[str]) -> None:
    up, _, send, query, down = lines
    run(up)
    assert '{"acknowledged"' in run(send).splitlines()[-1]
    stored = expected_tables((DIRECTORY / "orders.jsonl").read_bytes().splitlines())["shop", "orders"]
    discounts = len(stored.rows) - stored.values("discount").count(None)
    assert run(query).splitlines()[-1] == f"{discounts} rows"
    assert run(down) == ""


@pytest.mark.slow  # an engine with a network of its own builds everything anew: scripts/image gives it another network
@pytest.mark.parametrize(
    ("variable", "service", "entry"), [("IMAGE", "check", ["materialize-iceberg"]), ("SERVERS_IMAGE", "s3", None)]
)
def test_an_image_that_is_missing_is_built(
    variable: str, service: str, entry: list[str] | None, run: Callable[[str], str], image: Image
) -> None:
    name = f"materialize-iceberg:built-by-compose-{service}"
    run(f"{variable}={name} docker compose build {service}")
    assert image.engine.images.get(name).attrs["Config"]["Entrypoint"] == entry
    image.engine.images.remove(name)
