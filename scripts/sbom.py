"""The software bill of materials: every pinned package that runs, with its licence, as CycloneDX 1.6 JSON."""

import json
import re
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path
from typing import Any, Final

REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements.txt"
CLASSIFIER: Final = "License :: OSI Approved :: "
# What packages write that is no SPDX expression.
SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    licence: str  # an SPDX expression, or what the package says instead

    @property
    def cyclonedx(self) -> dict[str, Any]:
        return {
            "type": "library",
            "name": self.name,
            "version": self.version,
            "purl": f"pkg:pypi/{self.name}@{self.version}",
            "licenses": [{"expression": self.licence}],
        }


def components() -> list[Component]:
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    return [Component(name, version, _licence(metadata(name))) for name, version in pinned]


def _licence(package: PackageMetadata) -> str:
    """Its SPDX expression, its classifiers, or else a short text of its own: in the order of what can be relied on."""
    if "License-Expression" in package:
        return package["License-Expression"]
    text = package["License"].strip() if "License" in package else ""
    classifiers = [each for each in package.get_all("Classifier") or () if each.startswith(CLASSIFIER)]
    said = [each.removeprefix(CLASSIFIER) for each in classifiers] or [text.partition("\n")[0]]
    return " OR ".join(SPDX.get(each, each) for each in said)


def main() -> None:
    found = [component.cyclonedx for component in components()]
    print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": found}, indent=1))


if __name__ == "__main__":
    main()
