"""The owner of a table: the binding that created it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OWNER_PROPERTY: Final = "flow.owner"


@dataclass(frozen=True)
class Owner:
    """The binding that created a table. The table records it in a property."""

    materialization: str
    # It changes with the binding's backfill. "": a later binding of the materialization has the table, which had rows.
    state_key: str

    def encode(self) -> str:
        """Return the value of the property."""
        return json.dumps({"materialization": self.materialization, "stateKey": self.state_key})

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Owner | None":
        """Return the owner that a table's properties name. None if they name none."""
        try:
            recorded = json.loads(properties[OWNER_PROPERTY])
            return cls(recorded["materialization"], recorded["stateKey"])
        except (KeyError, TypeError, ValueError):
            return None
