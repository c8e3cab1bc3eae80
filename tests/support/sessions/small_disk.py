"""A disk that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.jars import leave_out

SIZE: Final = 1 << 20  # bytes


@dataclass(frozen=True)
class SmallDisk:
    """A file system of a few hundred pages."""

    directory: Path

    @contextmanager
    def filled(self) -> Iterator[None]:
        """While the context lasts, it takes no byte more."""
        ballast = self.directory / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(SIZE))
            except OSError:
                yield
        ballast.unlink()


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    """Mounts one here; who may not, leaves the test out (in CI it fails)."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        leave_out("needs the permission to mount a small file system: run as root")
    try:
        yield SmallDisk(directory)
    finally:
        # Somebody may have files on it open still: it goes with the last of them.
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
