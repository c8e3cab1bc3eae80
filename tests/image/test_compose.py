"""README's way to try the image out, with an S3 server and a REST catalog, does what README says."""

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest

from fixtures.generate import DIRECTORY
from support.containers import IMAGE, Image
from support.expected_rows import expected_tables
from support.jars import REPOSITORY, jars
from support.readme import IMAGE_HEADING, readme_commands
from support.s3_server import versitygw

pytestmark = [*IMAGE, pytest.mark.spark, pytest.mark.catalog, pytest.mark.usefixtures("image")]


@pytest.fixture(scope="module")
def commands() -> Sequence[str]:
    """README's commands: set up, up, check, send, query and down."""
    _, commands = readme_commands(IMAGE_HEADING)
    return commands


@pytest.fixture
def run() -> Iterator[Callable[[str], str]]:
    """Runs a command of README and returns what it prints. The containers have a project name of their own."""
    versitygw()
    jars("rest-catalog")
    environment = {**os.environ, "COMPOSE_PROJECT_NAME": f"materialize-iceberg-{secrets.token_hex(4)}"}

    def run(command: str) -> str:
        outcome = subprocess.run(
            ["bash", "-c", command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        assert outcome.returncode == 0, (command, outcome.stdout, outcome.stderr)
        return outcome.stdout

    try:
        yield run
    finally:
        run("scripts/engine compose down --timeout 0")


def test_the_servers_come_up_and_the_connector_finds_nothing_in_its_way(
    run: Callable[[str], str], commands: Sequence[str]
) -> None:
    setup, up, check, *_ = commands
    run(setup)
    run(up)
    checked = run(check)
    assert "✓ storage" in checked
    assert "All checks passed." in checked


@pytest.mark.slow  # five transactions on two servers, and five containers that start for them
def test_a_conversation_is_sent_and_its_rows_are_found(run: Callable[[str], str], commands: Sequence[str]) -> None:
    _, up, _, send, query, down = commands
    run(up)
    assert '{"acknowledged"' in run(send).splitlines()[-1]
    stored = expected_tables((DIRECTORY / "orders.jsonl").read_bytes().splitlines())["shop", "orders"]
    discounts = len(stored.rows) - stored.values("discount").count(None)
    assert run(query).splitlines()[-1] == f"{discounts} rows"
    assert run(down) == ""


@pytest.mark.slow  # an engine with a network of its own builds everything anew: scripts/image gives it another network
def test_an_image_that_is_missing_is_built(run: Callable[[str], str], image: Image) -> None:
    name = "materialize-iceberg:built-by-compose"
    run(f"IMAGE={name} scripts/engine compose build s3")
    assert image.engine.images.get(name).attrs["Config"]["Entrypoint"] == ["materialize-iceberg"]
    image.engine.images.remove(name)
