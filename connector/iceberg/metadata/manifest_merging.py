"""Writes manifests again: merges small ones, and leaves out the files that a commit removes.

Merging keeps a table's manifest list short. The table's properties say when to merge. They have the names and defaults
of Iceberg's Java library.

A compaction removes data files, and a commit that deletes rows replaces delete files. They may be in many manifests.
Each of these could be written again, but then a table would keep as many manifests. So those of one spec and content
are written as one, as far as it has the size of a manifest.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final, Self

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from connector.encoding.live_rows.deletion_vectors import FileId
from connector.host.groups import divide, group_by
from connector.host.threads import AT_ONCE, map_in_threads
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import copy_manifest, read_entries
from connector.iceberg.metadata.row_lineage import ManifestKey, find_manifest_key
from connector.iceberg.metadata.snapshot_manifests import ManifestFactory
from connector.iceberg.metadata.table_properties import read_switch
from connector.model.properties import read_number
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

_FEW_FILES: Final = 32  # that are listed again in some milliseconds


@dataclass(frozen=True)
class MergeThresholds:
    """How many small manifests are too many, and up to how many bytes a manifest is small."""

    count: int = 100
    size: int = 8 << 20
    few: int = 0  # files; a manifest that lists so few is merged with any others

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Read a table's properties. ValueError if they are invalid."""
        count = read_number(properties, "commit.manifest.min-count-to-merge", cls.count)
        return cls(count, read_number(properties, "commit.manifest.target-size-bytes", cls.size))


def _wants_merging(table: Table) -> bool:
    """Whether commits merge the table's manifests. ValueError if its property is invalid."""
    return read_switch(table.properties, "commit.manifest-merge.enabled", True)


def find_mergeable(manifests: Sequence[ManifestFile], added: int, thresholds: MergeThresholds) -> list[ManifestFile]:
    """Return the manifests of one partition spec that are to be merged, now that `added` more come.

    Unless it lists few files, a manifest is merged only with others that together list at least as many as it does. So
    an entry is rewritten each time the number of files doubles, not with every merge.
    """
    chosen: list[ManifestFile] = []
    files = size = 0
    small = [manifest for manifest in manifests if manifest.manifest_length < thresholds.size]
    for manifest in sorted(small, key=_file_count):
        if files and _file_count(manifest) > max(files, thresholds.few):
            break
        size += manifest.manifest_length
        if size > thresholds.size:
            return chosen if len(chosen) > 1 else []
        chosen.append(manifest)
        files += _file_count(manifest)
    return chosen if len(chosen) > 1 and len(chosen) + added >= thresholds.count else []


class ManifestMerger:
    """Merges manifests for one snapshot.

    A later attempt uses the merged manifest only if the table still has the same manifests. Another writer may have
    deleted some of their files.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, tuple[ManifestKey, ...]], list[ManifestFile]] = {}

    def merge(
        self, factory: ManifestFactory, existing: Sequence[ManifestFile], added: Sequence[ManifestFile]
    ) -> list[ManifestFile]:
        """Return the table's manifests; fewer of them if there are too many of a kind and spec that is added to."""
        try:
            if not _wants_merging(factory.table):
                return list(existing)
            thresholds = MergeThresholds.of(factory.table.properties)
            candidates = group_by(existing, kind_of)
            for kind, added_of_kind in group_by(added, kind_of).items():
                chosen = find_mergeable(candidates.get(kind, ()), len(added_of_kind), thresholds)
                if chosen:
                    kept = [manifest for manifest in existing if manifest not in chosen]
                    existing = [*self.write_merged(factory, chosen), *kept]
        except Exception as error:  # noqa: BLE001 - merging helps later commits; it must not stop this one
            name = TableIdentifier.of(factory.table)
            log.warning("table %s: its small manifests stay: %s: %s", name, type(error).__name__, error)
        return list(existing)

    def write_merged(self, factory: ManifestFactory, chosen: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Write manifests of one kind and spec as one, and return it. If they list no files, return none."""
        # The prefix is part of the key: a manifest that is still to be committed must not be named by a passed value.
        key = factory.prefix, tuple(map(find_manifest_key, chosen))
        if key not in self._written:
            self._written[key] = self._write(factory, chosen)
        return list(map(copy_manifest, self._written[key]))

    def _write(self, factory: ManifestFactory, chosen: Sequence[ManifestFile]) -> list[ManifestFile]:
        entries = _live_entries(factory.table.io, chosen)
        first = next(entries, None)
        if first is None:
            return []
        spec_id, content = chosen[0].partition_spec_id, chosen[0].content
        return [factory.write(spec_id, content, existing=chain([first], entries))]


def _file_count(manifest: ManifestFile) -> int:
    """Return the number of files that the manifest lists, without deleted ones."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _live_entries(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    for first in range(0, len(manifests), AT_ONCE):
        part = manifests[first : first + AT_ONCE]
        yield from chain.from_iterable(map_in_threads(partial(read_entries, io), part, "merge"))


def remove_files(
    factory: ManifestFactory,
    existing: Sequence[ManifestFile],
    removed: Collection[ListedFile],
    merged: Iterable[ManifestFile] = (),
    added: Iterable[ManifestEntry] = (),
) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """Return the manifests that stay, and new ones in place of those that list removed files or are to be merged.

    The new ones name the removed files as deleted, and `added` data files. Manifests that list no files any more are
    left out.
    """
    new = group_by(added, lambda entry: entry.data_file.spec_id)
    gone = {file.id for file in removed}
    changed = {*(file.manifest for file in removed), *(each.manifest_path for each in merged if lists_files(each))}
    written = [
        _write_without(factory, packed, gone, new)
        for one_kind in group_by((each for each in existing if each.manifest_path in changed), kind_of).values()
        for packed in divide(one_kind, MergeThresholds.size, size_of)
    ]
    written += [factory.write(spec_id, added=entries) for spec_id, entries in new.items()]
    return [each for each in existing if each.manifest_path not in changed and lists_files(each)], written


def find_small(table: Table, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that a compaction merges. It does so even if they are few.

    A reader takes as long to open a manifest as to open a small data file. No transaction waits for a compaction.
    """
    try:
        if not _wants_merging(table):
            return []
        eager = replace(MergeThresholds.of(table.properties), count=2, few=_FEW_FILES)
    except ValueError:  # the next commit of a transaction warns of it
        return []
    return [each for one_kind in group_by(manifests, kind_of).values() for each in find_mergeable(one_kind, 0, eager)]


def kind_of(manifest: ManifestFile) -> tuple[int, ManifestContent]:
    """Return the partition spec and the content of a manifest. Only manifests of one kind can become one."""
    return manifest.partition_spec_id, manifest.content


def size_of(manifest: ManifestFile) -> int:
    """Return the bytes of a manifest."""
    return int(manifest.manifest_length)


def lists_files(manifest: ManifestFile) -> bool:
    """Whether the manifest lists more than deleted files. A later snapshot does not need the others."""
    return manifest.has_added_files() or manifest.has_existing_files()


def _write_without(
    factory: ManifestFactory,
    manifests: Sequence[ManifestFile],
    gone: Collection[FileId],
    new: dict[int, list[ManifestEntry]],
) -> ManifestFile:
    """Write the manifests as one, without the files in `gone`. Data files of their spec are taken from `new`."""
    spec_id, content = manifests[0].partition_spec_id, manifests[0].content
    added = new.pop(spec_id, ()) if content is ManifestContent.DATA else ()
    entries = _live_entries(factory.table.io, manifests)
    return factory.write(spec_id, content, existing=entries, gone=gone, added=added)
