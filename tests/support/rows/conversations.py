"""Conversations that were piped through connectors of their own, several at once."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.table import Table

from support.engines.readers import readers_catalog
from support.sessions.connector_process import Launch, Outcome, launch_process, run_conversation

# CI holds these fixture conversations also in a container: the packed form, and Loads.
IN_IMAGE_IN_CI: Final = ("packed", "updates")


@dataclass(frozen=True)
class Conversation:
    """What was sent, what came back, and the directory that the connector ran in."""

    lines: Sequence[bytes]
    directory: Path
    outcome: Outcome

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    def table(self, *path: str) -> Table:
        return readers_catalog(self.warehouse).load_table(path)


def hold_conversations(
    conversations: Mapping[str, Sequence[bytes]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    launch: Launch = launch_process,
) -> dict[str, Conversation]:
    def hold(name: str) -> Conversation:
        own = directory / name
        own.mkdir()
        return Conversation(conversations[name], own, run_conversation(conversations[name], own, environment, launch))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(conversations, pool.map(hold, conversations), strict=True))
