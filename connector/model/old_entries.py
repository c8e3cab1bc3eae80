"""The forms in which older versions of this image wrote the entries of the connector state."""

import msgspec

from connector.model.state import Entry, EntryBase, Int, LocatedRowsFile, Name


class FirstEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A staged commit in the form of version 1, which names no version."""

    path: tuple[Name, Name]


class SecondEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=2):
    """A staged commit in the form of version 2, whose commits delete nothing.

    It has `table` instead of `path`. So an image that only knows version 1 refuses the entry. Otherwise it would apply
    the part that it knows, and then delete the entry.
    """

    table: tuple[Name, Name]


# Each form has the fields of the one before. So a SecondEntry is an entry of any version from 2 to 5.
class ThirdEntry(SecondEntry, frozen=True, kw_only=True, tag=3):
    """A staged commit in the form of version 3, whose files are of no partition and in no sort order."""

    located: LocatedRowsFile | None = None


class FourthEntry(ThirdEntry, frozen=True, kw_only=True, tag=4):
    """A staged commit in the form of version 4, which does not say how fresh its rows are."""

    sort_order_id: Int = 0


class FifthEntry(FourthEntry, frozen=True, kw_only=True, tag=5):
    """A staged commit in the form of version 5, which does not say where its rows have their keys."""

    published: Int | None = None
    offsets: str = ""


def convert_entry(entry: FirstEntry | SecondEntry) -> Entry:
    """Convert an entry of an older version."""
    fields = msgspec.structs.asdict(entry)
    if isinstance(entry, FirstEntry):
        fields["table"] = fields.pop("path")
    return Entry(**fields)
