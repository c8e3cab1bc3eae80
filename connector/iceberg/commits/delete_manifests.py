"""Writes the manifests of new delete files, and counts delete files for summaries."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile

from connector.encoding.live_rows.deletion_vectors import WrittenVector
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import ManifestFactory, make_added_entry
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.metadata.vector_entries import make_vector_entry
from connector.model.state import DataFile

WrittenDeletes: TypeAlias = DataFile | WrittenVector  # a position delete file, or a deletion vector


def write_delete_manifests(
    factory: ManifestFactory, added: Iterable[tuple[Partition, WrittenDeletes]]
) -> list[ManifestFile]:
    """Write a manifest of new delete files for each partition spec."""
    by_spec: dict[int, list[ManifestEntry]] = {}
    for partition, file in added:
        by_spec.setdefault(partition.spec_id, []).append(_make_entry(file, partition))
    return [
        factory.write_added(spec_id, entries, content=ManifestContent.DELETES) for spec_id, entries in by_spec.items()
    ]


def _make_entry(file: WrittenDeletes, partition: Partition) -> ManifestEntry:
    if isinstance(file, WrittenVector):
        return make_vector_entry(file, partition)
    return make_added_entry(file, partition.spec_id, partition.record, content=DataFileContent.POSITION_DELETES)


def count_deletes(added: Sequence[WrittenDeletes], removed: Iterable[ListedFile]) -> dict[str, int]:
    """Count the delete files that a commit adds and removes, and their rows, as Iceberg's Java library does."""
    gone = [file for file in removed if file.content is not DataFileContent.DATA]
    new_vectors = sum(isinstance(file, WrittenVector) for file in added)
    old_vectors = sum(file.vector is not None for file in gone)
    return {
        "added-delete-files": len(added),
        "added-position-delete-files": len(added) - new_vectors,
        "added-dvs": new_vectors,
        "added-position-deletes": sum(file.rows for file in added),
        "removed-delete-files": len(gone),
        "removed-position-delete-files": len(gone) - old_vectors,
        "removed-dvs": old_vectors,
        "removed-position-deletes": sum(file.rows for file in gone),
    }
