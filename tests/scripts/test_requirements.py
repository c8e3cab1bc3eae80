"""The pinned requirements say what is installed, wherever they are installed."""

import re
import tomllib

import pytest

from support.repository import REPOSITORY

FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-java.txt",
    "requirements-moto.txt",
    "requirements-readers.txt",
    "requirements-seaweedfs.txt",
    "requirements-trino.txt",
)


def _pinned(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (REPOSITORY / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", FILES)
def test_they_name_no_index_and_no_path(name: str) -> None:
    assert not re.search(r"://|index|find-links|\s/|file:/", (REPOSITORY / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_has_its_hashes(name: str) -> None:
    text = (REPOSITORY / name).read_text()
    assert len(re.findall(r"== ?\S+ \\\n    --hash=sha256:", text)) == len(_pinned(name)) > 0


def test_every_dependency_of_the_project_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", dependency)[0] for dependency in project["dependencies"]}
    assert names <= _pinned("requirements.txt").keys()


def test_tests_run_with_the_versions_that_users_get() -> None:
    assert _pinned("requirements.txt").items() <= _pinned("requirements-dev.txt").items()
