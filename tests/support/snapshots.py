"""Texts that people read, kept in files to be reviewed: written anew where the environment has UPDATE_SNAPSHOTS."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def check_text(file: Path, name: str, text: str, placeholders: Mapping[str, str]) -> None:
    """The text is the one that the file has under this name, but for what differs from run to run."""
    for changing, placeholder in placeholders.items():
        text = text.replace(changing, placeholder)
    recorded = json.loads(file.read_text()) if file.exists() else {}
    if "UPDATE_SNAPSHOTS" in os.environ:
        recorded[name] = text.splitlines()
        file.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert text.splitlines() == recorded.get(name)
