"""Writes metrics to a file for the textfile collector of node-exporter. Readers see the old file or the new one."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EISDIR
from os import strerror
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import write_to_textfile

from connector.host.errors import UserError

log = logging.getLogger(__name__)

WRITE_EVERY: Final = 15.0  # seconds


@contextmanager
def write_metrics(path: Path, registry: CollectorRegistry, interval: float = WRITE_EVERY) -> Iterator[None]:
    """Write the file now, every `interval` seconds, and when the block ends. Raises UserError if it cannot be written.

    A later write that fails is only logged, the first time: metrics must not end the session.
    """
    try_to_write(path, registry)
    writer = _Writer(path, registry, interval)
    threading.Thread(target=writer.run, name="metrics-file", daemon=True).start()
    try:
        yield
    finally:
        writer.finish()


def try_to_write(path: Path, registry: CollectorRegistry) -> None:
    """Write the file. Raises UserError if that fails."""
    with _translate_errors(path):
        write_to_textfile(str(path), registry)


def try_directory(path: Path) -> None:
    """Create a file beside this one, and remove it. Raises UserError if that fails."""
    with _translate_errors(path):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, strerror(EISDIR))
        with NamedTemporaryFile(dir=path.parent, prefix=path.name):
            pass


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"/advanced/metrics/file: {path} cannot be written ({error.strerror}). Its directory must exist, its disk "
            "must have room, and the connector's user must be allowed to create files there."
        ) from error


class _Writer:
    def __init__(self, path: Path, registry: CollectorRegistry, interval: float) -> None:
        self._path, self._registry, self._interval = path, registry, interval
        self._has_ended = threading.Event()
        self._writing = threading.Lock()
        self._has_warned = False

    def run(self) -> None:
        while not self._has_ended.wait(self._interval):
            self._write()

    def finish(self) -> None:
        """Write the last values."""
        self._has_ended.set()
        self._write()

    def _write(self) -> None:
        with self._writing:
            try:
                try_to_write(self._path, self._registry)
            except UserError as error:
                if not self._has_warned:
                    log.warning("the file of metrics is not renewed: %s", error)
                self._has_warned = True
