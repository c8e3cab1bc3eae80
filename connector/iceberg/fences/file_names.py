"""The names of our files. They say which writer wrote a file, and on which fence value it was staged.

The names are read here. `fence.file_prefix` and `file_options.Destination` make them.
"""

import re
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table

from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import UUID, WriterId
from connector.model.table_identifier import Owner
from protocol.flow import WHOLE_RANGE

FILE_NAME: Final = re.compile(
    "(?:snap-[0-9]+-)?(?P<writer>[0-9a-f]{20})-(?P<range>[0-9a-f]{8}-[0-9a-f]{8})-"
    rf"(?P<table>{UUID})-(?P<value>{fence.FIRST}|(?:closed-(?:[0-9a-f]{{8}}-)?)?[0-9a-f]{{32}}|closed-(?:[0-9a-f]{{8}}-)?)-"
    rf"{UUID}(?:\.parquet|-deletes\.(?:parquet|puffin)|-located\.parquet|\.jsonl|\.run|-m0\.avro|\.avro|-files\.json)"
)
_COMPACTION: Final = "compact"
_COMPACTION_FILE: Final = re.compile(
    rf"(?:snap-[0-9]+-)?{_COMPACTION}-(?P<created>[0-9]{{13}})-(?P<table>{UUID})-{UUID}"
    r"(?:\.parquet|-deletes\.(?:parquet|puffin)|-order\.parquet|-m0\.avro|\.avro)"
)


def find_file_prefix(table: Table, owner: Owner | None) -> str:
    """Return the prefix of files that no session writes, named after one of the owner's writers. Without an owner,
    another program created the table, and they are named after any writer.

    A writer that is not closed is preferred: after its next commit, a session can tell whether the files are orphans.
    """
    recorded, prefix = table.properties, f"{fence.PREFIX}{fence.writer_hash(owner)}." if owner else fence.PREFIX
    names = [name for name in recorded if name.startswith(prefix) and fence.is_property_name(name)]
    creator = owner or Owner("", "")
    first = fence.property_name(WriterId(creator.materialization, creator.state_key, WHOLE_RANGE.key_range))
    name = min(names, key=lambda each: (recorded[each].startswith(fence.CLOSED), each), default=first)
    generation = find_generation(table, creator.materialization)
    return fence.file_prefix_of_property(name, generation.uuid, recorded.get(name, fence.NONE))


@dataclass(frozen=True)
class FileOrigin:
    """What a file's name says: its writer, its generation of rows, and the fence value that it was staged on."""

    writer_hash: str
    key_range: str
    table_uuid: str
    prev: str

    @classmethod
    def of(cls, name: str) -> "FileOrigin | None":
        """Read a file's name; None if the file is not ours."""
        match = FILE_NAME.fullmatch(name)
        if match is None:
            return None
        value = "" if match["value"] == fence.FIRST else match["value"].replace("-", ":")
        return cls(match["writer"], match["range"], match["table"], value)

    @property
    def property_name(self) -> str:
        return f"{fence.PREFIX}{self.writer_hash}.{self.key_range}"


@dataclass(frozen=True)
class CompactionOrigin:
    """What the name of a compaction's file says. No writer needs the file, so it has no fence value."""

    created_ms: int  # when the compaction began, in milliseconds since the epoch; the file is not older
    table_uuid: str  # of the table itself: another table may have the same directory

    @property
    def file_prefix(self) -> str:
        """The beginning of the names of the compaction's files."""
        return f"{_COMPACTION}-{self.created_ms:013}-{self.table_uuid}"

    @classmethod
    def of(cls, name: str) -> "CompactionOrigin | None":
        """Read a file's name; None if no compaction of ours has written the file."""
        match = _COMPACTION_FILE.fullmatch(name)
        return cls(int(match["created"]), match["table"]) if match else None
