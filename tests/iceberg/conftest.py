"""What all tests of this folder share."""

import pytest

from connector.iceberg.commits import retry_commits


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit be attempted again at once."""
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", 0.001)
