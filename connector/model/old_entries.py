"""The forms in which older versions of this image wrote the entries of the connector state."""

from typing import TypeAlias

from connector.model.state import Entry, EntryBase, Int, LocatedRows, Name


class FirstEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A staged commit in the form of version 1, which names no version."""

    path: tuple[Name, Name]


class SecondEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=2):
    """A staged commit in the form of version 2, whose commits delete nothing.

    It has `table` instead of `path`. So an image that only knows version 1 refuses the entry. Otherwise it would apply
    the part that it knows, and then delete the entry.
    """

    table: tuple[Name, Name]


class ThirdEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=3):
    """A staged commit in the form of version 3, whose files are of no partition and in no sort order."""

    table: tuple[Name, Name]
    located: LocatedRows | None = None


class FourthEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=4):
    """A staged commit in the form of version 4, which does not say how fresh its rows are."""

    table: tuple[Name, Name]
    located: LocatedRows | None = None
    sort_order_id: Int = 0


OldEntry: TypeAlias = FirstEntry | SecondEntry | ThirdEntry | FourthEntry


def convert_entry(entry: OldEntry) -> Entry:
    """Convert an entry of an older version."""
    return Entry(
        table=entry.path if isinstance(entry, FirstEntry) else entry.table,
        table_uuid=entry.table_uuid,
        spec_id=entry.spec_id,
        schema_id=entry.schema_id,
        files=entry.files,
        file_list=entry.file_list,
        located=entry.located if isinstance(entry, ThirdEntry | FourthEntry) else None,
        sort_order_id=entry.sort_order_id if isinstance(entry, FourthEntry) else 0,
        checkpoint=entry.checkpoint,
        prev=entry.prev,
    )
