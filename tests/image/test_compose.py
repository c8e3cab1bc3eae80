"""README's way to try the image out, with an S3 server and a REST catalog, does what README says."""

import os
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from fixtures.generate import DIRECTORY
from support.containers import IMAGE, Image
from support.expected_rows import expected_tables
from support.jars import REPOSITORY, jars
from support.s3_server import versitygw

pytestmark = [*IMAGE, pytest.mark.spark, pytest.mark.catalog]

COMMANDS: Final[Sequence[str]] = re.findall(
    r"^docker (compose .*?)(?: +#.*)?$", (REPOSITORY / "README.md").read_text(), re.M
)


@pytest.fixture
def compose(image: Image) -> Iterator[Callable[[str], str]]:
    """Runs a command of README and returns what it prints; the containers are a project of the test's own."""
    versitygw()
    jars("rest-catalog")
    # The tag stays: with its last one the image would go, which other tests need.
    image.engine.images.get(image.id).tag("materialize-iceberg", tag="tests")
    project = f"materialize-iceberg-{secrets.token_hex(4)}"
    environment = {**os.environ, "IMAGE": "materialize-iceberg:tests", "COMPOSE_PROJECT_NAME": project}

    def run(command: str) -> str:
        outcome = subprocess.run(
            f"scripts/engine {command}", cwd=REPOSITORY, env=environment, shell=True, capture_output=True, text=True
        )
        assert outcome.returncode == 0, (command, outcome.stdout, outcome.stderr)
        return outcome.stdout

    try:
        yield run
    finally:
        run("compose down --timeout 0")


def test_the_servers_come_up_and_the_connector_finds_nothing_in_its_way(compose: Callable[[str], str]) -> None:
    up, check, *_ = COMMANDS
    compose(up)
    checked = compose(check)
    assert "✓ storage" in checked
    assert "Nothing stands in the way." in checked


@pytest.mark.slow  # five transactions on two servers, and five containers that start for them
def test_a_conversation_is_sent_and_its_rows_are_found(compose: Callable[[str], str]) -> None:
    up, _, send, query, down = COMMANDS
    compose(up)
    assert '{"acknowledged"' in compose(send).splitlines()[-1]
    stored = expected_tables((DIRECTORY / "orders.jsonl").read_bytes().splitlines())["shop", "orders"]
    discounts = len(stored.rows) - stored.values("discount").count(None)
    assert compose(query).splitlines()[-1] == f"{discounts} rows"
    assert compose(down) == ""
