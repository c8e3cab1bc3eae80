"""What the image says of itself, and what it does not give away."""

import re

import pytest

from compare_images import read_image
from connector import VERSION
from support.sessions.containers import IMAGE, Image

pytestmark = [*IMAGE]

MOST_BYTES = 695_000_000
CREDENTIALS_IN_A_URL = re.compile(r"://[^/\s]*@")


def test_flow_learns_from_labels_how_to_speak_to_it(image: Image) -> None:
    labels = image.attributes["Config"]["Labels"]
    assert labels["FLOW_RUNTIME_PROTOCOL"] == "materialize"
    assert labels["FLOW_RUNTIME_CODEC"] == "json"


def test_it_names_its_version_and_its_revision(image: Image) -> None:
    labels = image.attributes["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert re.match("[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


def test_its_command_prints_its_revision(image: Image) -> None:
    status, printed = image.run("--version")
    assert status == 0
    assert f"(revision {image.attributes['Config']['Labels']['org.opencontainers.image.revision']})" in printed


def test_it_does_not_run_as_root(image: Image) -> None:
    assert image.attributes["Config"]["User"] == "65532:65532"


def test_it_knows_the_time_zones_of_schedules(image: Image) -> None:
    program = "from connector.config.sync_schedule import parse_time_zone; print(parse_time_zone('America/New_York'))"
    assert image.run("-c", program, entrypoint="/opt/connector/bin/python") == (0, "America/New_York\n")


def test_it_is_no_larger_than_promised(image: Image) -> None:
    assert image.attributes["Size"] <= MOST_BYTES


def test_where_packages_came_from_is_in_no_layer(image: Image) -> None:
    """The index's address has a password in it."""
    commands = [layer["CreatedBy"] for layer in image.engine.images.get(image.id).history()]
    environment = image.attributes["Config"]["Env"]
    assert not [text for text in (*commands, *environment) if CREDENTIALS_IN_A_URL.search(text)]
    status, printed = image.run("-c", "test ! -s /etc/pip.conf", entrypoint="sh")
    assert (status, printed) == (0, "")


@pytest.mark.parametrize("argument", ["spec", "--help", "--version"])
def test_commands_are_arguments(image: Image, argument: str) -> None:
    status, printed = image.run(argument)
    assert status == 0
    assert {"spec": '"configSchema"', "--help": "usage: materialize-iceberg", "--version": VERSION}[argument] in printed


def test_every_file_of_it_can_be_compared_with_another_build_s(image: Image) -> None:
    assert read_image(image.id)["opt/connector/bin/materialize-iceberg"].digest
