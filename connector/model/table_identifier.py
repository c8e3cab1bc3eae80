"""What identifies a table: its name in the catalog, its owner, and the generation of its rows. No module of ours is
below this."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyiceberg.table import Table

OWNER_PROPERTY: Final = "flow.owner"
GENERATION_PROPERTY: Final = "flow.generation"


class TableIdentifier(NamedTuple):
    """A namespace of one level, and the name of a table in it. Catalogs and the state take it as a pair."""

    namespace: str
    name: str

    @classmethod
    def of(cls, table: "Table") -> "TableIdentifier":
        """Return the identifier by which a table was loaded."""
        return cls(*table.name())

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class Owner:
    """The binding to which a table belongs. The table records it in a property."""

    materialization: str
    state_key: str  # it changes with the binding's backfill
    has_older_rows: bool = False  # the binding began with rows that it has not stored under this state key

    def encode(self) -> str:
        """Return the value of the property."""
        recorded = {"materialization": self.materialization, "stateKey": self.state_key}
        return json.dumps(recorded | ({"hasOlderRows": True} if self.has_older_rows else {}))

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Owner | None":
        """Return the owner that a table's properties name. None if they name none."""
        try:
            recorded = json.loads(properties[OWNER_PROPERTY])
            return cls(recorded["materialization"], recorded["stateKey"], recorded.get("hasOlderRows", False))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class Generation:
    """The rows that one task has written to a table since it last backfilled the table.

    Staged commits and names of files have the UUID of their generation. So to its task, each generation is another
    table. Commits that were staged for an earlier generation never get into the table.
    """

    uuid: str  # the table's own, until the first backfill
    former: tuple[str, ...] = ()  # the UUIDs of earlier generations
    materialization: str = ""
    # The id of the schema that the first commit makes the current one, when it replaces all rows. None after it.
    schema_id: int | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the table still has the earlier rows, which the first commit of the generation replaces."""
        return self.schema_id is not None

    @classmethod
    def of(cls, table_uuid: str, properties: Mapping[str, str], materialization: str) -> "Generation":
        """Read the task's generation of a table. ValueError if the property was changed by hand."""
        recorded = cls.recorded(properties)
        return recorded if recorded and recorded.materialization == materialization else cls(table_uuid)

    @classmethod
    def recorded(cls, properties: Mapping[str, str]) -> "Generation | None":
        """Read the generation that a table records; None if no backfill has replaced its rows. ValueError as above."""
        text = properties.get(GENERATION_PROPERTY)
        if text is None:
            return None
        try:
            found = json.loads(text)
            schema_id = found.get("schemaId")
            return cls(
                str(found["uuid"]),
                tuple(map(str, found["former"])),
                str(found["materialization"]),
                None if schema_id is None else int(schema_id),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{GENERATION_PROPERTY} is {text!r}; it must be as the connector wrote it") from error

    def encode(self) -> dict[str, str]:
        """Return the table property."""
        recorded = {"uuid": self.uuid, "former": self.former, "materialization": self.materialization}
        awaited = {"schemaId": self.schema_id} if self.is_awaited else {}
        return {GENERATION_PROPERTY: json.dumps(recorded | awaited)}
