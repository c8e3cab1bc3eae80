"""The way to build the image and to write tables with it, in docs/docker.md, works word for word and in its order."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import docker
import pytest

from connector.cli.texts.health_texts import format_count
from fixtures.generate import DIRECTORY
from support.engines.readers import readers_catalog
from support.pages import commands
from support.repository import REPOSITORY
from support.rows.expected_rows import expected_tables
from support.sessions.containers import IMAGE, Image

HEADING: Final = "The container image"

pytestmark = [*IMAGE, pytest.mark.usefixtures("image")]


@pytest.fixture(scope="module")
def environment(image: Image) -> Mapping[str, str]:
    """The environment of a shell in which the image was built, with what scripts/image says to export."""
    build, *_ = commands("docker.md", HEADING)
    built = _run(build, REPOSITORY, os.environ)
    assert built.stdout.strip() == image.id
    exports = re.findall(r"^export (DOCKER_HOST)=(.*)$", built.stderr, re.MULTILINE)
    return {**os.environ, **dict(exports)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory where the page's paths exist, and which has no tables yet."""
    for name in (".venv", "fixtures", "scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


def _run(command: str, directory: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    outcome = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, (command, outcome.stdout, outcome.stderr)
    return outcome


def test_docker_finds_the_image_by_the_name_that_the_page_gives_it(
    environment: Mapping[str, str], directory: Path
) -> None:
    _, spec, *_ = commands("docker.md", HEADING)
    assert '"configSchema"' in _run(spec, directory, environment).stdout


def test_tables_that_a_container_wrote_are_opened_on_the_host(environment: Mapping[str, str], directory: Path) -> None:
    _, _, send, show = commands("docker.md", HEADING)
    assert '{"acknowledged"' in _run(send, directory, environment).stdout.splitlines()[-1]
    stored = expected_tables((DIRECTORY / "orders.jsonl").read_bytes().splitlines())
    shown = _run(show, directory, environment).stdout
    for name, table in stored.items():
        assert f"━━ {'.'.join(name)}: {format_count(len(table.rows), 'row')}, " in shown
        opened = readers_catalog(directory / "warehouse").load_table(name)
        assert opened.scan().to_arrow().num_rows == len(table.rows)


def test_a_builder_without_buildkit_is_told_so_at_once(image: Image) -> None:
    """This API is that of the builder which docker's client uses where it finds no plugin for BuildKit."""
    with pytest.raises(docker.errors.BuildError, match="the --mount option requires BuildKit") as refusal:
        image.engine.images.build(path=str(REPOSITORY), rm=True, forcerm=True)
    steps = [line["stream"] for line in refusal.value.build_log if "stream" in line]
    assert not [step for step in steps if "RUN" in step][1:], "the first command is refused"
