"""Conversations that several modules look at are held once."""

import pytest

from fixtures.generate import DIRECTORY
from support.engines.spark_sql import IN_ITS_WORKER
from support.rows.conversations import Conversation, hold_conversations
from support.sessions.connector_process import Launch, launch_process
from support.sessions.containers import IMAGE, Image


@pytest.fixture(
    scope="session", params=[pytest.param("process", marks=IN_ITS_WORKER), pytest.param("image", marks=IMAGE)]
)
def launch(request: pytest.FixtureRequest) -> Launch:
    """What holds a conversation: a process of this working copy, and a container of its image."""
    if request.param == "process":
        return launch_process
    image: Image = request.getfixturevalue("image")
    return image.launch()


@pytest.fixture(scope="session")
def fixture_conversations(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Conversation]:
    """Every fixture conversation, held once."""
    lines = {path.stem: path.read_bytes().splitlines(keepends=True) for path in sorted(DIRECTORY.iterdir())}
    return hold_conversations(lines, tmp_path_factory.mktemp("fixture-conversations"), launch=launch)
