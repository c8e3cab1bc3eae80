"""Conversations that several modules look at are held once."""

import pytest

from fixtures.generate import DIRECTORY
from support.rows.conversations import IN_IMAGE_IN_CI, Conversation, hold_conversations
from support.sessions.connector_process import Launch, launch_process
from support.sessions.containers import Image


@pytest.fixture(scope="session")
def launch(request: pytest.FixtureRequest) -> Launch:
    """What holds a conversation: a process of this working copy, or a container of its image."""
    if request.param == "process":
        return launch_process
    image: Image = request.getfixturevalue("image")
    return image.launch()


@pytest.fixture(scope="session")
def fixture_conversations(
    launch: Launch, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Conversation]:
    """Every fixture conversation, held once."""
    has_all = launch is launch_process or request.config.getoption("--all")
    names = [path.stem for path in sorted(DIRECTORY.iterdir())] if has_all else IN_IMAGE_IN_CI
    lines = {name: (DIRECTORY / f"{name}.jsonl").read_bytes().splitlines(keepends=True) for name in names}
    return hold_conversations(lines, tmp_path_factory.mktemp("fixture-conversations"), launch=launch)
