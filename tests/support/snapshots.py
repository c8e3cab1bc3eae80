"""Texts that people read, kept in files to be reviewed: written anew where the environment has UPDATE_SNAPSHOTS."""

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from support.repository import TESTS

SNAPSHOTS: Final = TESTS / "snapshots"


def are_updated() -> bool:
    return "UPDATE_SNAPSHOTS" in os.environ


def check_text(file: str, name: str, text: str, placeholders: Mapping[str, str] = MappingProxyType({})) -> None:
    """The text is the one that a file of tests/snapshots has under this name, but for what differs from run to run."""
    path = SNAPSHOTS / f"{file}.json"
    for changing, placeholder in placeholders.items():
        text = text.replace(changing, placeholder)
    recorded = json.loads(path.read_text()) if path.exists() else {}
    if are_updated():
        recorded[name] = text.splitlines()
        path.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert text.splitlines() == recorded.get(name)
