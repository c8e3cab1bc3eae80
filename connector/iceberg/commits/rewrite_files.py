"""Replaces live data files of a table by other files with the same rows: plan, rewrite, commit.

A plan names the files and the columns of the new ones. A `Rewrite`, such as Spark's jobs, writes these. One commit then
exchanges the files. Only the plan depends on why files are rewritten.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.converted_files import Rewrite
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.commits.summaries import summarize_rewrite
from connector.iceberg.metadata.live_files import LiveFile
from connector.iceberg.metadata.manifest_merging import remove_files
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.snapshot_manifests import make_added_entry
from connector.iceberg.metadata.table_arrangement import keep_sort_order
from connector.iceberg.metadata.table_properties import find_missing_statistics
from connector.iceberg.metadata.table_updates import new_snapshot, require_unchanged
from connector.model.state import DataFile
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import access_to, keep_access_fresh
from connector.storage.storage_errors import translate_errors


@dataclass(frozen=True)
class RewritePlan:
    """Which live files of a table are rewritten, and into what."""

    table: Table  # as it was loaded
    files: Sequence[LiveFile]
    target: TargetFiles
    schema_id: int  # of the new files' columns
    summary: Mapping[str, str]  # says in the new snapshot who has rewritten the files, and why


@dataclass(frozen=True)
class Replacement:
    """A data file, and the files that take its place. They do not have its deleted rows."""

    old: LiveFile
    files: tuple[DataFile, ...]
    sort_order_id: int  # of the new files


class RewriteFiles:
    """Rewrites files of one table. A later attempt uses what an earlier one has written.

    A written file is used again only for equal `TargetFiles`, whose file names have the table's fence value. Once that
    value has passed, a session may delete the file as an orphan.
    """

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._written: dict[tuple[TargetFiles, SourceFile], tuple[DataFile, ...] | None] = {}

    def commit(
        self,
        catalog: Catalog,
        plan: RewritePlan,
        updates: Sequence[TableUpdate],
        further: Sequence[TableRequirement],
    ) -> None:
        """Rewrite the files that no earlier attempt has rewritten. In one commit, exchange the files of the plan and
        make the other updates.

        CommitFailedException if the table's rows or its schema have changed since the plan was made, or if one of the
        further requirements does not hold; UnconvertibleError if a value cannot be converted.
        """
        table = plan.table
        missing = [file.source for file in plan.files if (plan.target, file.source) not in self._written]
        if missing:
            path = TableIdentifier.of(table)
            access = keep_access_fresh(path, access_to(table), partial(catalog.load_table, path))
            written = self._rewrite(plan.target, missing, access)
            for source, files in zip(missing, written, strict=True):
                self._written[plan.target, source] = files
            # The credentials that the table was loaded with may have expired, and another writer may have committed.
            table = _load_unchanged(catalog, table)
        converted = {column.source_id for column in plan.target.columns if column.is_converted}
        replacements = [
            Replacement(file, files, keep_sort_order(table, file.listed.sort_order_id, converted))
            for file in plan.files
            if (files := self._written[plan.target, file.source]) is not None
        ]
        snapshot = _new_snapshot(table, plan, replacements)
        catalog.commit_table(table, (*require_unchanged(table), *further), (*updates, *snapshot))


def _load_unchanged(catalog: Catalog, table: Table) -> Table:
    """Load the table again. CommitFailedException if it has changed."""
    loaded = catalog.load_table(table.name())
    if loaded.metadata_location != table.metadata_location:
        raise CommitFailedException("the table was changed while its files were written again")
    return loaded


def _new_snapshot(table: Table, plan: RewritePlan, replacements: Sequence[Replacement]) -> tuple[TableUpdate, ...]:
    """Make the snapshot of a commit; none if all files stay."""
    if not replacements:
        return ()
    snapshots = SnapshotWriter()
    prefix = plan.target.destination.prefix
    with translate_errors(table.location()):
        factory, existing = snapshots.make_factory(table, prefix), manifests_of(table, table.current_snapshot())
        # Deletion vectors go with their data files, as Iceberg demands. So do position delete files of only one.
        removed = [file for each in replacements for file in (each.old.listed, *each.old.file_scoped)]
        kept, changed = remove_files(factory, existing, removed, added=_make_entries(table, replacements))
        added = [file for each in replacements for file in each.files]
        summary = {**plan.summary, **summarize_rewrite(added, (), removed)}
        snapshot = snapshots.replace(table, prefix, [*changed, *kept], plan.schema_id, summary)
        return new_snapshot(table, snapshot)


def _make_entries(table: Table, replacements: Sequence[Replacement]) -> Iterator[ManifestEntry]:
    """Yield the entries of the new files, which keep the partitions of the old ones."""
    missing = find_missing_statistics(table)
    for each in replacements:
        for file in each.files:
            # With the old file's sequence number: equality deletes of other engines apply to it as before.
            old, order = each.old.listed, each.sort_order_id
            yield make_added_entry(file, old.partition, old.sequence_number, sort_order_id=order, missing=missing)
