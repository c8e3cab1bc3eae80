"""`scripts/setup` makes a new environment in place of one that was interrupted while it was made."""

import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Final

from support.repository import REPOSITORY

# A Python that only makes environments, whose own Python does nothing.
PYTHON: Final = """#!/usr/bin/env bash
[[ $1 == -m && $2 == venv ]] || exit 0
mkdir -p .venv/bin
touch .venv/is-new
printf '#!/bin/sh\\n' >.venv/bin/python
chmod +x .venv/bin/python
"""


def test_an_environment_without_pip_is_made_anew(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    for name in ("requirements-dev.txt", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    venv.create(tmp_path / ".venv", with_pip=False, symlinks=True)
    subprocess.run([tmp_path / ".venv" / "bin" / "python", "-c", ""], check=True)
    python = tmp_path / "bin" / "python3.11"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["scripts/setup", "--packages"], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / ".venv" / "is-new").exists()
