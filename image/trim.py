"""Removes from the container image what its list of unused files names: `python trim.py LIST SITE_PACKAGES`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

KEEP = "!"


def unused(patterns: Sequence[str], root: Path) -> set[Path]:
    """The files that are to go: the last pattern that matches decides, as in a .gitignore file. A pattern that changes
    nothing is an error: what it was written for has another name now."""
    chosen: set[Path] = set()
    for pattern in patterns:
        matched = set(_files(root, pattern.removeprefix(KEEP)))
        before = len(chosen)
        chosen = chosen - matched if pattern.startswith(KEEP) else chosen | matched
        if len(chosen) == before:
            sys.exit(f"{pattern}: names nothing in {root} that earlier lines have not named")
    return chosen


def read(path: Path) -> list[str]:
    lines = map(str.strip, path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def trim(patterns: Sequence[str], root: Path) -> None:
    for file in unused(patterns, root):
        file.unlink()
    for directory in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if not any(directory.iterdir()):
            directory.rmdir()


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for path in root.glob(pattern):
        yield from (file for file in path.rglob("*") if not file.is_dir()) if path.is_dir() else [path]


if __name__ == "__main__":
    trim(read(Path(sys.argv[1])), Path(sys.argv[2]))
