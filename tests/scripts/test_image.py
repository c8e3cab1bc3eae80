"""`scripts/image` names the commit that it builds."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from connector.cli.commands import version_command
from support.repository import REPOSITORY

ENGINE: Final = """#!/usr/bin/env bash
if [[ $1 == start ]]; then echo unix:///an-engine; exit; fi
printf '%s\\n' "$@" >built
while [[ $1 != --iidfile ]]; do shift; done
echo sha256:0 >"$2"
"""


class Checkout:
    """A repository with the scripts, whose container engine only writes down what it is told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(REPOSITORY / "scripts", directory / "scripts")
        (directory / "connector").mkdir()
        shutil.copy(REPOSITORY / "connector" / "__init__.py", directory / "connector")
        engine = directory / "scripts" / "engine"
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        (directory / ".gitignore").write_text("built\n")

    def run(self, *command: str) -> str:
        person = {
            f"GIT_{role}_{part}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
        }
        ran = subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, **person},
            check=True,
            capture_output=True,
            text=True,
        )
        return ran.stdout.strip()

    def commit(self, *tags: str) -> str:
        self.run("git", "init", "--quiet")
        self.run("git", "add", ".")
        self.run("git", "commit", "--quiet", "--allow-empty", "--message", "a commit")
        for tag in tags:
            self.run("git", "tag", "--annotate", "--message", tag, tag)
        return self.run("git", "rev-parse", "HEAD")

    def built_revision(self) -> str:
        self.run("scripts/image")
        (argument,) = (
            line for line in (self.directory / "built").read_text().splitlines() if line.startswith("REVISION=")
        )
        return argument.removeprefix("REVISION=")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(version_command, "ROOT", tmp_path / "outer" / "checkout")
    return Checkout(tmp_path / "outer" / "checkout")


def test_the_image_has_the_commit_as_revision_also_after_a_tag(checkout: Checkout) -> None:
    commit = checkout.commit("v1.2.3")
    assert checkout.built_revision() == version_command._find_revision() == commit
    (checkout.directory / "connector" / "__init__.py").write_text('VERSION = "1.2.4"\n')
    assert checkout.built_revision() == version_command._find_revision()
    assert checkout.built_revision().endswith("-dirty")


def test_sources_without_a_repository_do_not_have_the_revision_of_the_one_around_them(checkout: Checkout) -> None:
    checkout.run("git", "init", "--quiet", "..")
    checkout.run("git", "commit", "--quiet", "--allow-empty", "--message", "another repository's commit")
    assert checkout.built_revision() == version_command._find_revision() == "unknown"
