"""`scripts/image` names the commit that it builds, and a published image gets the names of its version."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from connector import VERSION
from connector.cli.commands import version_command
from support.repository import REPOSITORY

WORKFLOW: Final = REPOSITORY / ".github" / "workflows" / "image.yml"
ENGINE: Final = """#!/usr/bin/env bash
if [[ $1 == start ]]; then echo unix:///an-engine; exit; fi
printf '%s\\n' "$@" >built
while [[ $1 != --iidfile ]]; do shift; done
echo sha256:0 >"$2"
"""
DOCKER: Final = """#!/usr/bin/env bash
printf '%s\\n' "$*" >>docker-calls
"""


def jobs() -> Any:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


class Checkout:
    """A repository with the scripts, whose container engine only writes down what it is told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(REPOSITORY / "scripts", directory / "scripts")
        (directory / "connector").mkdir()
        shutil.copy(REPOSITORY / "connector" / "__init__.py", directory / "connector")
        (directory / "bin").mkdir()
        for path, text in ((directory / "scripts" / "engine", ENGINE), (directory / "bin" / "docker", DOCKER)):
            path.write_text(text)
            path.chmod(0o755)
        (directory / ".gitignore").write_text("built\ndocker-calls\n")

    def run(self, *command: str, **environment: str) -> str:
        person = {
            f"GIT_{role}_{part}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
        }
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        ran = subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, **person, **environment, "PATH": path},
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

    def run_step(self, job: str, name: str, **environment: str) -> None:
        """Run the step of the workflow with this name."""
        [step] = [step for step in jobs()[job]["steps"] if step.get("name") == name]
        self.run("bash", "-e", "-c", step["run"], **environment)

    def publish(self, tag: str) -> list[str]:
        """Run the steps that name the image after a tag. Returns what docker was told."""
        (self.directory / "docker-calls").unlink(missing_ok=True)
        image = "registry.example.com/Acme/image"
        self.run_step("publish", "The highest version is also the latest", GITHUB_REF_NAME=tag, IMAGE=image)
        calls = self.directory / "docker-calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(version_command, "ROOT", tmp_path / "outer" / "checkout")
    return Checkout(tmp_path / "outer" / "checkout")


def test_arguments_of_docker_build_take_the_place_of_the_usual_name(checkout: Checkout) -> None:
    arguments = ["--tag", "mine", "--platform", "linux/amd64", "--pull", "--no-cache"]
    checkout.run("scripts/image", *arguments)
    built = (checkout.directory / "built").read_text().splitlines()
    assert built[-len(arguments) - 1 :] == [*arguments, "."]
    assert "materialize-iceberg" not in built
    checkout.run("scripts/image")
    assert (checkout.directory / "built").read_text().splitlines()[-3:] == ["--tag", "materialize-iceberg", "."]


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


def test_only_the_highest_version_becomes_the_latest_image(checkout: Checkout) -> None:
    checkout.commit("v1.1.4", "v1.9.0", "v1.10.0", "v2.0.0-rc.1", "vendored")
    image = "registry.example.com/acme/image"
    assert checkout.publish("v1.10.0") == [f"tag {image}:1.10.0 {image}:latest"]
    assert checkout.publish("v1.9.0") == []
    assert checkout.publish("v2.0.0-rc.1") == []
    checkout.commit("v2.0.0", "v1.10.1")
    assert checkout.publish("v1.10.1") == []
    assert checkout.publish("v2.0.0") == [f"tag {image}:2.0.0 {image}:latest"]


def test_a_release_that_cannot_be_published_fails_before_the_tests_begin() -> None:
    assert (jobs()["tests"]["needs"], jobs()["publish"]["needs"]) == ("release", "tests")


def test_without_a_registry_the_release_says_which_variable_to_set(checkout: Checkout) -> None:
    checkout.run_step("release", "A registry is named", REGISTRY="registry.example.com")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        checkout.run_step("release", "A registry is named", REGISTRY="")
    assert "Set the repository variable REGISTRY" in failed.value.stdout


@pytest.mark.parametrize(
    ("tag", "heading", "is_ready"),
    [
        (f"v{VERSION}", f"## {VERSION} - 2026-12-01", True),
        (f"v{VERSION}", "## Unreleased", False),
        (f"v{VERSION}", f"## {VERSION}1 - 2026-12-01", False),
        ("v99.0.0", "## 99.0.0 - 2026-12-01", False),
    ],
)
def test_a_release_has_a_tag_of_its_version_and_a_section_of_the_changelog(
    checkout: Checkout, tag: str, heading: str, is_ready: bool
) -> None:
    (checkout.directory / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    try:
        for name in ("The tag is the version", "The changelog has the version"):
            checkout.run_step("release", name, GITHUB_REF_NAME=tag)
    except subprocess.CalledProcessError:
        assert not is_ready
    else:
        assert is_ready
