"""What pytest has as `monkeypatch`, for functions that are called."""

from types import FunctionType
from typing import Any

import pytest

from support.plans import called


class PlannedPatch(pytest.MonkeyPatch):  # type: ignore[misc]  # final, so that it may change; so may this
    """A function that a test puts in place of another is called, or the test fails."""

    def setattr(self, *place_and_value: Any, **options: Any) -> None:
        *place, value = place_and_value
        put: Any = super().setattr
        put(*place, called(value) if isinstance(value, FunctionType) else value, **options)
