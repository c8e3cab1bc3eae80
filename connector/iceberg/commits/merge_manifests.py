"""Merges small manifests into one, so that a table's manifest list stays short.

The table's properties say when. They have the names and defaults of Iceberg's Java library.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.utils.properties import property_as_bool, property_as_int

from connector.host.threads import map_in_threads
from connector.iceberg.metadata.manifests import ManifestFactory

log = logging.getLogger(__name__)

READS_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Thresholds:
    """How many small manifests are too many, and up to how many bytes a manifest is small."""

    count: int = 100
    size: int = 8 << 20

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Thresholds | None":
        """Read a table's properties. None if it wants no merging; ValueError if they are invalid."""
        found = dict(properties)
        if not property_as_bool(found, "commit.manifest-merge.enabled", True):
            return None
        count = property_as_int(found, "commit.manifest.min-count-to-merge", cls.count)
        size = property_as_int(found, "commit.manifest.target-size-bytes", cls.size)
        assert count is not None
        assert size is not None
        return cls(count, size)


def find_mergeable(manifests: Sequence[ManifestFile], added: int, thresholds: Thresholds) -> list[ManifestFile]:
    """Return the manifests of one partition spec that are to be merged, now that `added` more come.

    A manifest is merged only with others that together list at least as many files as it does. So an entry is rewritten
    each time the number of files doubles, not with every merge.
    """
    chosen: list[ManifestFile] = []
    files = size = 0
    small = [manifest for manifest in manifests if manifest.manifest_length < thresholds.size]
    for manifest in sorted(small, key=_file_count):
        if files and _file_count(manifest) > files:
            break
        size += manifest.manifest_length
        if size > thresholds.size:
            return chosen if len(chosen) > 1 else []
        chosen.append(manifest)
        files += _file_count(manifest)
    return chosen if len(chosen) > 1 and len(chosen) + added >= thresholds.count else []


class ManifestMerger:
    """Merges manifests for one append.

    A later attempt uses the merged manifest only if the table still has the same manifests. Another writer may have
    deleted some of their files.
    """

    def __init__(self, factory: ManifestFactory) -> None:
        self._factory = factory
        self._written: dict[tuple[str, ...], list[ManifestFile]] = {}

    def merge(
        self, table: Table, prefix: str, held: Sequence[ManifestFile], added: Sequence[ManifestFile]
    ) -> list[ManifestFile]:
        """Return the table's manifests; fewer of them if there are too many of a kind and spec that is added to."""
        try:
            thresholds = Thresholds.of(table.properties)
            if thresholds is None:
                return list(held)
            for spec_id, content in {(manifest.partition_spec_id, manifest.content) for manifest in added}:
                more = [m for m in added if (m.partition_spec_id, m.content) == (spec_id, content)]
                of_kind = [m for m in held if (m.partition_spec_id, m.content) == (spec_id, content)]
                chosen = find_mergeable(of_kind, len(more), thresholds)
                if chosen:
                    held = self._merge(table, prefix, held, chosen)
        except Exception as error:  # noqa: BLE001 - merging helps later commits; it must not stop this one
            log.warning(
                "table %s: its small manifests stay: %s: %s", ".".join(table.name()), type(error).__name__, error
            )
        return list(held)

    def _merge(
        self, table: Table, prefix: str, held: Sequence[ManifestFile], chosen: Sequence[ManifestFile]
    ) -> Sequence[ManifestFile]:
        # The prefix is part of the key: a manifest that is still to be committed must not be named by a passed value.
        key = (prefix, *(manifest.manifest_path for manifest in chosen))
        if key not in self._written:
            self._written[key] = self._write(table, prefix, chosen)
        # New objects, because writing a manifest list sets the sequence number in the objects that it gets.
        return [*deepcopy(self._written[key]), *(manifest for manifest in held if manifest not in chosen)]

    def _write(self, table: Table, prefix: str, chosen: Sequence[ManifestFile]) -> list[ManifestFile]:
        entries = _live_entries(table.io, chosen)
        first = next(entries, None)
        if first is None:
            return []
        spec_id, content = chosen[0].partition_spec_id, chosen[0].content
        return [self._factory.of_existing(table, prefix, spec_id, chain([first], entries), content)]


def _file_count(manifest: ManifestFile) -> int:
    """Return the number of files that the manifest lists, without deleted ones."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _live_entries(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    def live(manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(io)

    for first in range(0, len(manifests), READS_AT_ONCE):
        for entries in map_in_threads(live, manifests[first : first + READS_AT_ONCE], READS_AT_ONCE, "merge"):
            yield from entries
