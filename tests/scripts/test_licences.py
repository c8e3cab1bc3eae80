"""Every package that runs has a licence that lets users run it, and pass the image on, under this project's."""

import re

import pytest

from sbom import Component, components

# To be amended by a person who has read the licence.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "LGPL-3.0-only",  # psycopg: used as it is, as a library that users can replace
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}


@pytest.mark.parametrize("component", components(), ids=lambda component: component.name)
def test_a_packages_licence_is_allowed(component: Component) -> None:
    assert set(re.split(r" (?:AND|OR) |[()]", component.licence)) - {""} <= ALLOWED
