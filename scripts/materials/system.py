"""Lists Debian's packages and the Java runtime."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from materials.component import Component, DebianPackage
from materials.jars import GPL_FOR_JAVA


def debian_packages() -> Iterator[DebianPackage]:
    fields = "${Package}\t${Version}\t${Architecture}\n"
    listed = subprocess.run(
        ["dpkg-query", "--show", "--showformat", fields], check=True, capture_output=True, text=True
    )
    for line in listed.stdout.splitlines():
        name, version, architecture = line.split("\t")
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}"
        yield DebianPackage(name, version, purl, _licences(name))


def java_runtime(home: Path) -> Component:
    (version,) = re.findall(r'^JAVA_VERSION="(.*)"$', (home / "release").read_text(), re.MULTILINE)
    return Component("openjdk", version, f"pkg:generic/openjdk@{version}", GPL_FOR_JAVA)


def _licences(package: str) -> str:
    copyright_file = Path("/usr/share/doc") / package / "copyright"
    text = copyright_file.read_text(errors="replace") if copyright_file.exists() else ""
    names = re.findall(r"^License: *(\S.*)$", text, re.MULTILINE) if text.startswith("Format:") else []
    return ", ".join(sorted(set(names))) or f"see {copyright_file}"
