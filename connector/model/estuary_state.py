"""What Estuary's S3 Iceberg connector leaves to a task whose image was replaced by this one: entries in the task's
state, and a table property."""

from collections.abc import Mapping
from typing import Final

import msgspec

from connector.host.errors import UserError
from protocol.flow import Json

_FILE_KEYS: Final = "fileKeys"  # the files of its last transaction, until it has added them to the table
_CHECKPOINT: Final = "currentCheckpoint"  # of the same transaction
ESTUARY_NAMES: Final = frozenset({_FILE_KEYS, "previousCheckpoint", _CHECKPOINT})  # in the state of a state key

# Which checkpoint each materialization had when it last added files: a JSON object. It changes with the files.
ADDED_PROPERTY: Final = "flow_checkpoints_v1"


def read_added(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the checkpoint whose files Estuary's connector has added last to a table, for each materialization. Empty
    if it has added none, or if the property was changed by hand."""
    try:
        return msgspec.json.decode(properties.get(ADDED_PROPERTY, "{}"), type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return {}


def check_files_are_added(state: Json, state_key: str, properties: Mapping[str, str], materialization: str) -> None:
    """Raise UserError if Estuary's connector has staged files for a table, and may not have added them."""
    kept = ((state or {}).get("bindingStates") or {}).get(state_key) or {}
    files = kept.get(_FILE_KEYS)
    if not isinstance(files, list | None):
        raise UserError(
            f"the task's state, state key {state_key!r}: `{_FILE_KEYS}` is not a list. The connector that ran this "
            "task before lists its staged files there. Restore the state from before the change."
        )
    if files and read_added(properties).get(materialization, "") != kept.get(_CHECKPOINT):
        raise UserError(
            f"the connector that ran this task before has staged {len(files)} data file(s) for {state_key}, and "
            "may not have added them to the table. Run its image again until it has acknowledged them, or backfill "
            "the binding."
        )
