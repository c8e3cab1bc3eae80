"""Writes manifests again without the files that a commit removes.

A compaction removes data files, and a commit that deletes rows replaces delete files. They may be in many manifests.
Each of these could be written again, but then a table would keep as many manifests. So those of one spec and content
are written as one, as far as it has the size of a manifest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.utils.bin_packing import PackingIterator

from connector.encoding.live_rows.deletion_vectors import FileId
from connector.iceberg.metadata.avro_files import read_entries
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import ManifestFactory, Thresholds, find_mergeable, kind_of

_FEW_FILES: Final = 32  # that are listed again in some milliseconds


def remove_files(
    factory: ManifestFactory,
    existing: Sequence[ManifestFile],
    removed: Collection[ListedFile],
    merged: Iterable[ManifestFile] = (),
    added: Mapping[int, Sequence[ManifestEntry]] | None = None,
) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """Return the manifests that stay, and new ones in place of those that list removed files or are to be merged.

    The new ones name the removed files as deleted, and `added` data files, by their partition spec. Manifests that list
    no files any more are left out.
    """
    new = dict(added or {})
    gone = {file.id for file in removed}
    changed = {*(file.manifest for file in removed), *(each.manifest_path for each in merged if lists_files(each))}
    written = [
        _write(factory, together, gone, new)
        for of_kind in _group_by_kind(each for each in existing if each.manifest_path in changed)
        for together in PackingIterator(of_kind, Thresholds.size, lookback=1, weight_func=size_of)
    ]
    written += [factory.write_added(spec_id, entries) for spec_id, entries in new.items()]
    return [each for each in existing if each.manifest_path not in changed and lists_files(each)], written


def find_small(table: Table, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that a compaction merges. It does so even if they are few.

    A reader takes as long to open a manifest as to open a small data file. No transaction waits for a compaction.
    """
    try:
        thresholds = Thresholds.of(table.properties)
    except ValueError:  # the next commit of a transaction warns of it
        return []
    if thresholds is None:
        return []
    eager = replace(thresholds, count=2, few=_FEW_FILES)
    return [each for of_kind in _group_by_kind(manifests) for each in find_mergeable(of_kind, 0, eager)]


def _group_by_kind(manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """Return the manifests of each partition spec and content."""
    by_kind: dict[tuple[int, ManifestContent], list[ManifestFile]] = {}
    for manifest in manifests:
        by_kind.setdefault(kind_of(manifest), []).append(manifest)
    return list(by_kind.values())


def size_of(manifest: ManifestFile) -> int:
    """Return the bytes of a manifest."""
    return int(manifest.manifest_length)


def lists_files(manifest: ManifestFile) -> bool:
    """Whether the manifest lists more than deleted files. A later snapshot does not need the others."""
    return manifest.has_added_files() or manifest.has_existing_files()


def _write(
    factory: ManifestFactory,
    manifests: Sequence[ManifestFile],
    gone: Collection[FileId],
    new: dict[int, Sequence[ManifestEntry]],
) -> ManifestFile:
    """Write the manifests as one. If they list data files, take the new files of their spec from `new`."""
    spec_id, content = manifests[0].partition_spec_id, manifests[0].content
    added = new.pop(spec_id, ()) if content is ManifestContent.DATA else ()
    entries = chain.from_iterable(read_entries(factory.table.io, manifest) for manifest in manifests)
    return factory.write_existing(spec_id, entries, content, gone, added)
