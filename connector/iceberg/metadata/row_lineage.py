"""Row lineage: the ids of the rows of tables of format version 3.

A manifest list has the id of the first row of each manifest with data files. The rows of its files have the ids that
follow, file by file. A file that was written to a manifest again has its own first id there. So a row keeps its id as
long as it stays in its file.

PyIceberg reads all manifests as those of version 2, without these ids, and without the places of deletion vectors. The
connector reads them as those of version 3: the older versions have less fields, in the same order.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3

from connector.encoding.live_rows.lineage_columns import LINEAGE_COLUMNS, SEQUENCE_NUMBER

# A manifest never changes, but the first commit after an upgrade to version 3 gives ids to the rows of its files.
ManifestKey: TypeAlias = tuple[str, int | None]  # its location, and the id of its first row
NEWEST_VERSION: Final = 3  # of manifests and manifest lists, as they are read
# The names of the fields of manifest lists, and of files in manifests.
LIST_FIELDS: Final = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[NEWEST_VERSION].fields]
FILE_FIELDS: Final = [field.name for field in DATA_FILE_TYPE[NEWEST_VERSION].fields]
_FIRST_ROW_ID_OF_MANIFEST: Final = LIST_FIELDS.index("first_row_id")
_FIRST_ROW_ID_OF_FILE: Final = FILE_FIELDS.index("first_row_id")


def has_row_lineage(table: Table) -> bool:
    """Whether the table's rows have ids: it has format version 3."""
    return isinstance(table.metadata, TableMetadataV3)


def can_keep_lineage(table: Table) -> bool:
    """Whether rows keep their ids and the numbers of their last changes when they are written to another file.

    A table may have columns with the names of those for row lineage. Readers would mix them up.
    """
    names = {column.name.lower() for column in table.schema().fields}
    return names.isdisjoint(
        column.name for column in LINEAGE_COLUMNS if has_row_lineage(table) or column.id == SEQUENCE_NUMBER
    )


def first_row_id_of(file: ManifestDataFile) -> int | None:
    """Return the id of the first row of a file, as `read_entries` has read it. None if its rows have no ids."""
    number: int | None = file[_FIRST_ROW_ID_OF_FILE]
    return number


def find_manifest_key(manifest: ManifestFile) -> ManifestKey:
    """Return a key for what is known of a manifest's entries."""
    return manifest.manifest_path, manifest[_FIRST_ROW_ID_OF_MANIFEST]


def number_rows(live: Iterable[ManifestEntry], manifest: ManifestFile) -> None:
    """Give the files of a manifest without an id theirs. If its snapshot is of version 2, they get none."""
    next_row_id = first_row_id = manifest[_FIRST_ROW_ID_OF_MANIFEST]
    for file in (entry.data_file for entry in live):
        if first_row_id is None:
            file[_FIRST_ROW_ID_OF_FILE] = None
        elif file[_FIRST_ROW_ID_OF_FILE] is None:
            file[_FIRST_ROW_ID_OF_FILE] = next_row_id
            next_row_id += file.record_count


def assign_row_ids(manifests: Iterable[ManifestFile], next_row_id: int) -> int:
    """Give each manifest of data files the id of its first row, unless it has one. Return the next free id.

    Some ids may stay unused: those of files that have their own. Iceberg counts them, too.
    """
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest[_FIRST_ROW_ID_OF_MANIFEST] is None:
            manifest[_FIRST_ROW_ID_OF_MANIFEST] = next_row_id
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
    return next_row_id
