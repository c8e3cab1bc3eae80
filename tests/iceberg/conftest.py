"""What all tests of this folder share."""

import pytest

from connector.iceberg.commits import commit


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit be attempted again at once."""
    monkeypatch.setattr(commit, "FIRST_PAUSE", 0.001)
