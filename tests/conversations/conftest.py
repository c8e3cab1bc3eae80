"""Conversations that several modules look at are held once."""

import pytest

from fixtures.generate import DIRECTORY
from support.conversations import Conversation, hold_conversations


@pytest.fixture(scope="session")
def fixture_conversations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Conversation]:
    """Every fixture conversation, held once."""
    lines = {path.stem: path.read_bytes().splitlines(keepends=True) for path in sorted(DIRECTORY.iterdir())}
    return hold_conversations(lines, tmp_path_factory.mktemp("fixture-conversations"))
