"""What Estuary's S3 Iceberg connector leaves to a task whose image was replaced by this one: entries in the task's
state, and a table property."""

import json
from collections.abc import Mapping
from typing import Final

from connector.host.errors import UserError
from protocol.flow import Json

_FILE_KEYS: Final = "fileKeys"  # the files of its last transaction, until it has added them to the table
_CHECKPOINT: Final = "currentCheckpoint"  # of the same transaction
ESTUARY_NAMES: Final = frozenset({_FILE_KEYS, "previousCheckpoint", _CHECKPOINT})  # in the state of a state key

# Which checkpoint each materialization had when it last added files: a JSON object. It changes with the files.
ADDED_PROPERTY: Final = "flow_checkpoints_v1"


def find_added(properties: Mapping[str, str], materialization: str) -> str | None:
    """Return the checkpoint whose files Estuary's connector has added last to a table, for a materialization. None if
    it has added none."""
    try:
        recorded = json.loads(properties.get(ADDED_PROPERTY, "{}"))
    except ValueError:
        return None
    added = recorded.get(materialization) if isinstance(recorded, dict) else None
    return added if isinstance(added, str) else None


def check_files_are_added(state: Json, state_key: str, properties: Mapping[str, str], materialization: str) -> None:
    """Raise UserError if Estuary's connector has staged files for a table, and may not have added them."""
    kept = ((state or {}).get("bindingStates") or {}).get(state_key) or {}
    files = kept.get(_FILE_KEYS)
    if not isinstance(files, list | None):
        raise UserError(
            f"the task's state, state key {state_key!r}: `{_FILE_KEYS}` is not a list. The connector that ran this "
            "task before lists its staged files there. Restore the state from before the change."
        )
    added = find_added(properties, materialization)
    if files and (added is None or added != kept.get(_CHECKPOINT)):
        raise UserError(
            f"the connector that ran this task before has staged {len(files)} data file(s) for {state_key}, and "
            "may not have added them to the table. Run its image again until it has acknowledged them, or backfill "
            "the binding."
        )
