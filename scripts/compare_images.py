"""Lists the files in which two images differ: `compare_images.py IMAGE IMAGE`. Timestamps are only counted."""

import hashlib
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

DOCKER: Final = (str(Path(__file__).with_name("engine")), "docker")
# Files that differ in each build, and why.
DIFFERS: Final = {
    "opt/connector/share/materialize-iceberg/spark-classes.jsa": "has classes in the order of their loading by threads",
}


@dataclass(frozen=True)
class Entry:
    """A file or directory. Two entries are equal if only their timestamps differ."""

    kind: bytes
    mode: int
    owner: tuple[int, int]
    target: str
    digest: str
    modified: float = field(compare=False)


def read_entries(archive: IO[bytes]) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of a tar archive with their paths."""
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            digest = hashlib.sha256(content.read()).hexdigest() if content else ""
            owner = (member.uid, member.gid)
            yield member.name, Entry(member.type, member.mode, owner, member.linkname, digest, member.mtime)


def find_differing(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> list[str]:
    return sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))


def read_image(image: str) -> dict[str, Entry]:
    created = subprocess.run([*DOCKER, "create", image], check=True, stdout=subprocess.PIPE, text=True)
    container = created.stdout.strip()
    try:
        with subprocess.Popen([*DOCKER, "export", container], stdout=subprocess.PIPE) as export:
            assert export.stdout is not None
            found = dict(read_entries(export.stdout))
            export.stdout.read()  # the padding of the archive: `docker export` fails if it cannot write that
        assert export.returncode == 0
        return found
    finally:
        subprocess.run([*DOCKER, "rm", container], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    left, right = map(read_image, sys.argv[1:])
    different = find_differing(left, right)
    moved = [path for path in left.keys() & right.keys() if left[path].modified != right[path].modified]
    for path in different:
        print(f"{path}: {DIFFERS.get(path, 'should be the same')}")
    print(f"{len(different)} of {len(left | right)} files differ; the timestamps of {len(moved)} do")
    return 1 if set(different) - DIFFERS.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
