"""The bill of materials names all that is in the image, and everything there may be used and passed on."""

import json
import re
from typing import Any, Final, TypeAlias

import pytest

from support.repository import REPOSITORY
from support.sessions.containers import IMAGE, Image

pytestmark = [*IMAGE]

Bill: TypeAlias = dict[str, str]  # the licence of each component, by its package URL

# To be amended by a person who has read the licence.
ALLOWED: Final = {
    "0BSD",
    "Apache-1.1",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "EPL-2.0",
    "GPL-2.0-only WITH Classpath-exception-2.0",  # Java's: what only runs on it is not under it
    "LGPL-3.0-only",  # psycopg: used as it is, as a library that users can replace
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
# What of Debian is free as Debian's guidelines have it: "non-free/libs" would be the section of a package that is not.
FREE_SECTION: Final = "[a-z0-9-]+"


@pytest.fixture(scope="module")
def bill(image: Image) -> Bill:
    volumes = [f"{REPOSITORY}/scripts:/scripts:ro"]
    status, printed = image.run(
        "-m", "materials.bill", entrypoint="python3", volumes=volumes, environment={"PYTHONPATH": "/scripts"}
    )
    assert status == 0, printed
    return {component["purl"]: _licence(component) for component in json.loads(printed)["components"]}


def _licence(component: Any) -> str:
    (said,) = component["licenses"]
    return str(said.get("expression") or said["license"]["name"])


def _listed(image: Image, command: str) -> set[str]:
    status, printed = image.run("-c", command, entrypoint="sh")
    assert status == 0, printed
    return set(printed.split())


def test_every_pinned_package_is_named_but_those_that_are_removed(bill: Bill) -> None:
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)", (REPOSITORY / "requirements.txt").read_text(), re.MULTILINE)
    unused = (REPOSITORY / "image" / "unused.txt").read_text()
    removed = {name.replace("_", "-") for name in re.findall(r"^(\w+)-\*\.dist-info$", unused, re.MULTILINE)}
    missing = {name for name, version in pinned if f"pkg:pypi/{name}@{version}" not in bill}
    assert missing == removed & dict(pinned).keys()


def test_every_jar_is_named_with_where_it_is_from(image: Image, bill: Bill) -> None:
    named = {re.sub(r".*/(.+)@(.+?)(?:\?classifier=(.+))?$", r"\1-\2-\3", purl) for purl in bill if "pkg:maven" in purl}
    assert _listed(image, "cd /opt/connector/lib/python3.11/site-packages/pyspark/jars && ls") == {
        f"{name.removesuffix('-')}.jar" for name in named
    }
    assert not [purl for purl in bill if "unknown" in purl]


def test_every_package_of_the_base_is_named(image: Image, bill: Bill) -> None:
    installed = _listed(image, "dpkg-query --show --showformat '${Package}\n'")
    assert {re.sub(r".*/(.+)@.*", r"\1", purl) for purl in bill if "pkg:deb" in purl} == installed
    assert any(purl.startswith("pkg:generic/openjdk@17") for purl in bill)


def test_every_package_and_jar_has_a_licence_that_is_allowed(bill: Bill) -> None:
    judged = {purl: licence for purl, licence in bill.items() if "pkg:deb" not in purl}
    assert {purl: licence for purl, licence in judged.items() if not _may_be_used(licence)} == {}


def test_the_base_has_free_packages_only(image: Image) -> None:
    sections = _listed(image, "dpkg-query --show --showformat '${Section}\n'")
    assert [section for section in sections if not re.fullmatch(FREE_SECTION, section)] == []


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("SSPL-1.0 OR MIT", True),
        ("MIT AND SSPL-1.0", False),
        ("MPL-2.0 AND (SSPL-1.0 OR MIT)", False),
        ("unknown", False),
    ],
)
def test_of_several_licences_one_that_is_allowed_is_enough_where_users_choose(licence: str, is_allowed: bool) -> None:
    assert _may_be_used(licence) is is_allowed


def _may_be_used(licence: str) -> bool:
    """Whether one alternative has nothing but what is allowed; what is in parentheses is, whatever is chosen."""
    within = re.sub(r"\(.*?\)", lambda group: group[0].strip("()").replace(" OR ", " AND "), licence)
    return any(set(alternative.split(" AND ")) <= ALLOWED for alternative in within.split(" OR "))
