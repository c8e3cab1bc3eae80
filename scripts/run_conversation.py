"""Sends a conversation to the connector, with an embedded catalog, and then shows the tables that it wrote."""

import argparse
import itertools
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from connector.cli.conversation import Conversation, ConversationEndedError
from show_tables import show_tables

CONFIGURED: Final = {"validate", "apply", "open"}  # the requests that have a config


def main() -> int:
    arguments = _arguments()
    warehouse: Path = (
        arguments.warehouse or _fresh_directory(Path("warehouse"), Path(arguments.conversation.name).stem)
    ).resolve()
    print(f"warehouse: {warehouse}", file=sys.stderr)
    with arguments.conversation as conversation:
        status = run(conversation, warehouse)
    if status:
        print(ConversationEndedError(status), file=sys.stderr)
        return status
    if (warehouse / "catalog.db").exists():
        show_tables(warehouse)
    else:
        print("No table to show: this conversation does not use the embedded catalog.", file=sys.stderr)
    return 0


def run(conversation: Iterable[bytes], warehouse: Path) -> int:
    with Conversation(partial(print, file=sys.stderr), log_level="info") as connector:
        # Use both pipes at the same time: the connector stops reading until its responses are read.
        lines = (with_warehouse(line, warehouse) for line in conversation)
        feeder = threading.Thread(target=connector.feed, args=(lines,))
        feeder.start()
        status = connector.wait()
        feeder.join()
    return status


def with_warehouse(line: bytes, warehouse: Path) -> bytes:
    """Return a request with the embedded catalog in this directory. Other lines, even malformed ones, do not change."""
    if line.startswith(b'{"store"'):
        return line
    try:
        request = json.loads(line)
        catalogs = [catalog for kind in CONFIGURED & request.keys() for catalog in _embedded_catalogs(request[kind])]
    except (ValueError, AttributeError):
        return line
    for catalog in catalogs:
        catalog["warehouse"] = str(warehouse)
    return json.dumps(request).encode() + b"\n" if catalogs else line


def _embedded_catalogs(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task in (request, request.get("materialization") or {}, request.get("lastMaterialization") or {}):
        catalog = (task.get("config") or {}).get("catalog") or {}
        if catalog.get("catalog_type") == "Local":
            yield catalog


def _fresh_directory(parent: Path, name: str) -> Path:
    return next(path for n in itertools.count(1) if not (path := parent / f"{name}-{n}").exists())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/run", description=__doc__)
    parser.add_argument("conversation", type=_readable, metavar="FILE.jsonl", help="requests, one JSON object per line")
    parser.add_argument(
        "--warehouse",
        type=Path,
        metavar="DIRECTORY",
        help="the directory of the embedded catalog; it may exist already (default: a new directory)",
    )
    return parser.parse_args()


def _readable(name: str) -> IO[bytes]:
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be read: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
