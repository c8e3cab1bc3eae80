"""Lists the installed Python packages, including the connector."""

from collections.abc import Iterator
from importlib.metadata import PackageMetadata, distributions
from typing import Final

from materials.component import Component

CLASSIFIER: Final = "License :: OSI Approved :: "
# Licence texts of packages that are not SPDX expressions.
SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def python_packages() -> Iterator[Component]:
    for installed in distributions():
        name = installed.name.lower().replace("_", "-")
        purl = f"pkg:pypi/{name}@{installed.version}"
        yield Component(name, installed.version, purl, _licence(installed.metadata))


def _licence(package: PackageMetadata) -> str:
    """Return its SPDX expression, or else its classifiers, or else the first line of its licence text."""
    if "License-Expression" in package:
        return package["License-Expression"]
    text = package["License"].strip() if "License" in package else ""
    classifiers = [each for each in package.get_all("Classifier") or () if each.startswith(CLASSIFIER)]
    said = [each.removeprefix(CLASSIFIER) for each in classifiers] or [text.partition("\n")[0]]
    return " OR ".join(SPDX.get(each, each) for each in said)
