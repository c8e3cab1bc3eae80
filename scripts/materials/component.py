"""One thing that the image has, as CycloneDX lists it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    purl: str
    licence: str  # an SPDX expression, or what its author says instead

    @property
    def cyclonedx(self) -> dict[str, Any]:
        named = {"type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version, "purl": self.purl}
        return {**named, "licenses": [{"expression": self.licence}]}


@dataclass(frozen=True)
class DebianPackage(Component):
    """Its licences are names that Debian has chosen for them, not all of which are SPDX's."""

    @property
    def cyclonedx(self) -> dict[str, Any]:
        return {**super().cyclonedx, "licenses": [{"license": {"name": self.licence}}]}
