"""What the public S3 Iceberg connector keeps in a task's state, under the same names as ours. A task brings it along
when its image is exchanged for this one."""

from collections.abc import Iterable, Mapping
from typing import Final

from connector.host.errors import UserError
from protocol.flow import Json

_STAGED: Final = "fileKeys"  # files that it has not added yet
_NAMES: Final = frozenset({_STAGED, "previousCheckpoint", "currentCheckpoint"})


def own_ranges(kept: Mapping[str, Json]) -> dict[str, Json]:
    """Of what is kept for a state key, our own share: by key range."""
    return {name: value for name, value in kept.items() if name not in _NAMES}


def check_nothing_is_staged(state: Json, state_keys: Iterable[str]) -> None:
    """UserError where rows of the log would be in no table: we cannot know which of the files are there already."""
    kept = (state or {}).get("bindingStates") or {}
    for state_key in state_keys:
        files = (kept.get(state_key) or {}).get(_STAGED)
        if not isinstance(files, list | None):
            raise UserError(
                f"the task's state, state key {state_key!r}: `{_STAGED}` is not a list. The connector that ran this "
                "task before keeps the files there that it has staged. Restore the state from before the change."
            )
        if files:
            raise UserError(
                f"the connector that ran this task before has staged {len(files)} data file(s) for {state_key} which "
                "it may not have added to the table. Run its image again until it has acknowledged them, or backfill "
                "the binding."
            )
