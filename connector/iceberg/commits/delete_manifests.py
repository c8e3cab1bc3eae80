"""Writes the manifests of new delete files."""

from collections.abc import Iterable
from typing import TypeAlias

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile

from connector.encoding.live_rows.deletion_vectors import WrittenVector
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
    return make_added_entry(file, partition, content=DataFileContent.POSITION_DELETES)
