"""Another engine that writes to our tables, as PyIceberg's users do."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from crash.ledger import Entry, Slot

APPENDED: Final = (Entry(-1, 0, 0), Entry(-1, 1, 5))
OVERTAKING: Final = (Entry(-2, 0, 0),)


def append(table: Table, entries: Iterable[Entry]) -> None:
    schema = table.schema().as_arrow()
    absent = {field.name: None if field.nullable else "{}" for field in schema}
    rows = [absent | asdict(entry) | {"slot": entry.slot} for entry in entries]
    table.append(pa.Table.from_pylist(rows, schema=schema))


def overtake(catalog: Catalog, path: str | tuple[str, ...]) -> None:
    append(catalog.load_table(path), OVERTAKING)


def delete(table: Table, slots: Iterable[Slot]) -> None:
    """Rows by their keys, as PyIceberg does: the other rows of their files move to new ones."""
    table.delete(" OR ".join(f"(account = {account} AND slot = {slot})" for account, slot in slots))


def rewrite(table: Table) -> None:
    """Everything that the table holds, in new files."""
    table.overwrite(table.scan().to_arrow())


def expire_all_but_the_newest(table: Table) -> None:
    newest = table.metadata.current_snapshot_id
    expired = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != newest]
    table.maintenance.expire_snapshots().by_ids(expired).commit()


@contextmanager
def orphans_removed(table: Table, locations: Iterable[str]) -> Iterator[None]:
    """Files to which no snapshot refers are deleted, however much somebody still needs them; in the end they are put
    back."""
    contents = {}
    for location in locations:
        with table.io.new_input(location).open() as stream:
            contents[location] = stream.read()
        table.io.delete(location)
    yield
    for location, content in contents.items():
        with table.io.new_output(location).create() as stream:
            stream.write(content)
