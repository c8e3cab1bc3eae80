"""Manifests in which data files take the place of others with the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from connector.iceberg.metadata.manifests import ManifestFactory, make_added_entry, manifests_of
from connector.model.state import DataFile


@dataclass(frozen=True)
class Replacement:
    """A data file that goes, and those that take its place."""

    entry: ManifestEntry
    files: tuple[DataFile, ...]

    @property
    def spec_id(self) -> int:
        return int(self.entry.data_file.spec_id)

    @property
    def added(self) -> list[ManifestEntry]:
        """Entries with the old file's sequence number, so that other engines' equality deletes apply as before."""
        partition, number = self.entry.data_file.partition, self.entry.sequence_number
        return [make_added_entry(file, self.spec_id, partition, number) for file in self.files]


def replace_manifests(
    table: Table, prefix: str, factory: ManifestFactory, replacements: Sequence[Replacement]
) -> list[ManifestFile]:
    """All manifests of the new snapshot; what is not replaced stays as it is, whoever has added it."""
    gone = {replacement.entry.data_file.file_path for replacement in replacements}
    manifests = []
    for spec_id, of_spec in groupby(sorted(replacements, key=_spec_id), key=_spec_id):
        if added := [entry for replacement in of_spec for entry in replacement.added]:
            manifests.append(_write(table, prefix, factory, spec_id, added))
    for manifest in manifests_of(table.io, table.current_snapshot()):
        if manifest.content == ManifestContent.DATA:
            manifest = _without(table, prefix, factory, manifest, gone)
        manifests.append(manifest)
    return manifests


def summarize_replacements(replacements: Sequence[Replacement]) -> dict[str, str]:
    added = [file for replacement in replacements for file in replacement.files]
    gone = [replacement.entry.data_file for replacement in replacements]
    return {
        "added-data-files": str(len(added)),
        "added-records": str(sum(file.rows for file in added)),
        "added-files-size": str(sum(file.size for file in added)),
        "deleted-data-files": str(len(gone)),
        "deleted-records": str(sum(file.record_count for file in gone)),
        "removed-files-size": str(sum(file.file_size_in_bytes for file in gone)),
    }


def _spec_id(replacement: Replacement) -> int:
    return replacement.spec_id


def _write(
    table: Table, prefix: str, factory: ManifestFactory, spec_id: int, entries: Sequence[ManifestEntry]
) -> ManifestFile:
    with factory.writer(table, prefix, spec_id, table.metadata.current_schema_id) as writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()


def _without(
    table: Table, prefix: str, factory: ManifestFactory, manifest: ManifestFile, gone: set[str]
) -> ManifestFile:
    entries = manifest.fetch_manifest_entry(table.io)
    if not any(entry.data_file.file_path in gone for entry in entries):
        return manifest
    spec_id, schema_id = manifest.partition_spec_id, table.metadata.current_schema_id
    with factory.writer(table, prefix, spec_id, schema_id) as writer:
        for entry in entries:
            if entry.data_file.file_path in gone:
                writer.delete(entry)
            else:
                writer.existing(entry)
    return writer.to_manifest_file()
