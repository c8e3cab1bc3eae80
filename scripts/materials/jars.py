"""Lists Spark's jars with their names and licences: from the jar itself, or from the tables below if it has none."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from materials.component import Component

GPL_FOR_JAVA: Final = "GPL-2.0-only WITH Classpath-exception-2.0"
# Words and addresses by which jars name their licences. The first one that is found decides.
SPDX: Final = (
    (r"CDDL ?\+ ?GPL", f"CDDL-1.1 OR {GPL_FOR_JAVA}"),
    (r"apache.*2|licenses/LICENSE-2\.0", "Apache-2.0"),
    (r"epl[- ]?v?2", "EPL-2.0"),
    (r"classpath|GPL.*CPE", GPL_FOR_JAVA),
    (r"edl-v10|\bEDL\b", "BSD-3-Clause"),
    (r"bsd-2", "BSD-2-Clause"),
    (r"bsd|asm\.ow2", "BSD-3-Clause"),
    (r"\bmit\b|jquery", "MIT"),
    (r"publicdomain|public domain", "CC0-1.0"),
    (r"MPL.1\.1", "MPL-1.1"),
    (r"lgpl.2\.1", "LGPL-2.1-only"),
    (r"copyright-documents", "LicenseRef-W3C-documents-1999"),
)
# Jars that do not name a licence or a group, by the beginning of their names. The longest match decides.
SILENT: Final = {
    "RoaringBitmap": ("org.roaringbitmap", "Apache-2.0"),
    "chill": ("com.twitter", "Apache-2.0"),
    "hadoop-client": ("org.apache.hadoop", "Apache-2.0"),
    "ivy": ("org.apache.ivy", "Apache-2.0"),
    "jackson-module-scala": ("com.fasterxml.jackson.module", "Apache-2.0"),
    "json4s": ("org.json4s", "Apache-2.0"),
    "jsr305": ("com.google.code.findbugs", "Apache-2.0"),
    "lz4-java": ("org.lz4", "Apache-2.0"),
    "objenesis": ("org.objenesis", "Apache-2.0"),
    "oro": ("oro", "Apache-1.1"),
    "scala-": ("org.scala-lang", "Apache-2.0"),
    "scala-parallel-collections": ("org.scala-lang.modules", "Apache-2.0"),
    "scala-xml": ("org.scala-lang.modules", "Apache-2.0"),
    "snappy-java": ("org.xerial.snappy", "Apache-2.0"),
    "spark-": ("org.apache.spark", "Apache-2.0"),
    "zstd-jni": ("com.github.luben", "BSD-2-Clause"),
}
UNKNOWN: Final = ("unknown", "unknown")
POM: Final = re.compile(r"META-INF/maven/([^/]+)/([^/]+)/pom\.xml")
LICENCES_OF_A_POM: Final = re.compile(r"<license>.*?<name>(.*?)</name>", re.DOTALL)
VERSION: Final = re.compile(r"(.+?)(?:-((?:linux|osx)-.+))?")


def jars(directory: Path) -> Iterator[Component]:
    return map(_component, sorted(directory.glob("*.jar")))


def _component(path: Path) -> Component:
    with ZipFile(path) as jar:
        # A jar also has the poms of the jars that were put into it.
        poms = [pom for pom in map(POM.fullmatch, jar.namelist()) if pom and path.stem.startswith(f"{pom[2]}-")]
        own = max(poms, key=lambda pom: len(pom[2]), default=None)
        name = own[2] if own else re.split(r"-\d", path.stem)[0]
        known = max((beginning for beginning in SILENT if name.startswith(beginning)), key=len, default="")
        group, licence = SILENT.get(known, UNKNOWN)
        said = _of_bundle(jar) or (own and LICENCES_OF_A_POM.findall(jar.read(own[0]).decode())) or [licence]
    version, classifier = VERSION.fullmatch(path.stem.removeprefix(f"{name}-")).groups()  # type: ignore[union-attr]  # anything matches
    purl = f"pkg:maven/{own[1] if own else group}/{name}@{version}"
    return Component(name, version, purl + (f"?classifier={classifier}" if classifier else ""), _expression(said))


def _of_bundle(jar: ZipFile) -> Sequence[str]:
    """Return the licences in an OSGi manifest, which continues long lines on the next line."""
    manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r\n", "\n").replace("\n ", "")
    found = re.search(r"^Bundle-License: (.*)$", manifest, re.MULTILINE)
    return found[1].split(", ") if found else []


def _expression(said: Iterable[str]) -> str:
    """Return an SPDX expression. If a pom names several licences, users may choose one: that is Maven's rule."""
    return " OR ".join(dict.fromkeys(map(_spdx, said)))


def _spdx(text: str) -> str:
    return next((spdx for words, spdx in SPDX if re.search(words, text, re.IGNORECASE)), text.strip())
