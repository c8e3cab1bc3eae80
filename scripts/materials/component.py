"""One component of the image, as CycloneDX lists it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    purl: str
    licence: str  # an SPDX expression, or else the author's own text

    @property
    def cyclonedx(self) -> dict[str, Any]:
        named = {"type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version, "purl": self.purl}
        return {**named, "licenses": [{"expression": self.licence}]}


@dataclass(frozen=True)
class DebianPackage(Component):
    """A package of Debian. Its licences have Debian's names, and not all of these are SPDX identifiers."""

    @property
    def cyclonedx(self) -> dict[str, Any]:
        return {**super().cyclonedx, "licenses": [{"license": {"name": self.licence}}]}
