"""Deletes files that were staged for a table that a backfill replaces. They can never be committed."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from posixpath import basename

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.iceberg.loaded_tables import load_table
from connector.iceberg.metadata.retention import may_delete_files
from connector.iceberg.metadata.snapshot_files import find_unreferenced
from connector.iceberg.metadata.table_directories import is_in_table_bucket
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import files_of
from connector.storage.stored_files import delete_all

log = logging.getLogger(__name__)


@contextmanager
def remove_staged_files_after(
    catalog: Catalog, path: TableIdentifier, dropped: Sequence[StagedCommit]
) -> Iterator[None]:
    """Delete the files of dropped commits after the block has replaced the table or its rows.

    Files that a snapshot refers to were committed. They stay with the other earlier files. All files stay if the block
    has dropped the table.
    """
    table = load_table(catalog, path) if dropped else None
    discarded = _find_unreferenced(table, dropped) if table else []
    yield
    if table is None or not discarded:
        return
    # An earlier process may have committed the files in the meantime. It cannot do that any more.
    with _warn_of_failures(path):
        after = load_table(catalog, path)
        # Only the same table tells. A former one may have another name now, or be brought back: its files stay.
        if after and after.metadata.table_uuid == table.metadata.table_uuid:
            kept = {basename(location): location for location in discarded}
            delete_all(table.io, [kept[name] for name in find_unreferenced(after, kept)])


def _find_unreferenced(table: Table, dropped: Sequence[StagedCommit]) -> list[str]:
    """Return the locations of staged files that may be deleted, because no snapshot of the table refers to them."""
    if is_in_table_bucket(table.location()):
        return []
    here = [
        commit for commit in dropped if commit.table_uuid == find_generation(table, commit.writer.materialization).uuid
    ]
    with _warn_of_failures(TableIdentifier.of(table)):
        if not may_delete_files(table):
            return []
        locations = {
            basename(location): location
            for commit in here
            for location in (*commit.locations, *(file.path for file in files_of(table.io, commit.files)))
        }
        return [locations[name] for name in find_unreferenced(table, locations)]
    return []


@contextmanager
def _warn_of_failures(path: TableIdentifier) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - perhaps the user backfills because the table cannot be read
        log.warning(
            "table %s: files that were staged before the backfill were not deleted: %s: %s",
            path,
            type(error).__name__,
            error,
        )
