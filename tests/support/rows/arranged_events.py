"""A collection of events whose binding has partitions and a sort order, which later publications change."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyiceberg.table import Table

from fixtures.collection import Collection, Field
from fixtures.conversation import Row
from support.engines.readers import readers_catalog
from support.sessions.runtime import Runtime, Session

# `partition_by` and `sort_by` of each publication. DuckDB cannot parse a column with the name `at`.
ARRANGEMENTS: Final = (("day(happened)", "happened desc"), ("bucket(4, id), truncate(1, note)", ""), ("", "note"))
DAYS: Final = ("2024-02-29", "2024-03-01")
_EVENTS: Final = Collection(
    "acmeCo/events",
    "events",
    (
        Field("id", "/id", ("integer",), exists="MUST", is_key=True),
        Field("happened", "/happened", ("string",), string={"format": "date-time"}),
        Field("note", "/note", ("string",)),
    ),
)


def arranged(partition_by: str, sort_by: str, *, delta_updates: bool) -> Collection:
    """Return the collection with these settings of its binding."""
    settings = {"partition_by": partition_by, "sort_by": sort_by, "delta_updates": delta_updates}
    return replace(_EVENTS, settings=settings)


def make_event(number: int, version: int) -> Any:
    """Return a document. Its next version is of the other day."""
    hour = 23 - (number * 7) % 24
    day = DAYS[(number + version) % 2]
    return {"id": number, "happened": f"{day}T{hour:02}:00:00Z", "note": f"v{version} of {number}"}


def load_events(directory: Path) -> Table:
    """Load the table from the catalog."""
    return readers_catalog(directory / "warehouse").load_table(("shop", "events"))


def store_events(runtime: Runtime, events: Sequence[Any], *, with_loads: bool, publish: bool = False) -> set[int]:
    """Store the events in a session of one transaction. Return the keys of those that were loaded."""
    with runtime.open(publish=publish) as session:
        loaded = transact(session, events, with_loads=with_loads)
        ended = session.finish()
        assert ended.status == 0, ended.log
    return loaded


def transact(session: Session, events: Sequence[Any], *, with_loads: bool) -> set[int]:
    """Store the events in one transaction. Return the keys of those that were loaded."""
    if with_loads:
        session.load(*([event["id"]] for event in events))
    loaded = {document["id"] for _, document in session.flush()}
    session.store_rows(*(Row(0, event, exists=event["id"] in loaded) for event in events))
    session.start_commit()
    session.acknowledge()
    return loaded
