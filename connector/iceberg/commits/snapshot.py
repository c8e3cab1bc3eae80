"""Writes our snapshots: manifests, manifest list, summary; and names our files.

The name of a file says which writer wrote it, and on which fence value it was staged.
"""

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries

from connector.evolution.table_change import Owner
from connector.iceberg.commits import fence
from connector.iceberg.metadata.avro_files import AVRO_COMPRESSION, ManifestListWriter, WrittenFile, check_version
from connector.iceberg.metadata.manifests import (
    ManifestFactory,
    ManifestMerger,
    WrittenLists,
    manifests_of,
    metadata_location,
)
from connector.model.state import StagedCommit, WriterId
from connector.storage.file_io import files_of
from protocol.flow import WHOLE_RANGE

SUMMARY_MATERIALIZATION: Final = "flow.materialization"
SUMMARY_STATE_KEY: Final = "flow.state-key"
SUMMARY_KEY_RANGE: Final = "flow.key-range"
SUMMARY_FENCE: Final = "flow.fence"

FIRST: Final = "first"
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FILE_NAME: Final = re.compile(
    "(?:snap-[0-9]+-)?(?P<writer>[0-9a-f]{20})-(?P<range>[0-9a-f]{8}-[0-9a-f]{8})-"
    rf"(?P<table>{_UUID})-(?P<value>{FIRST}|(?:closed-(?:[0-9a-f]{{8}}-)?)?[0-9a-f]{{32}}|closed-(?:[0-9a-f]{{8}}-)?)-"
    rf"{_UUID}(?:\.parquet|\.jsonl|-m0\.avro|\.avro|-files\.json)"
)


class SnapshotWriter:
    """Writes the metadata files of one snapshot.

    Manifests are written once, and used by every attempt. The manifest list is new for each attempt, since it depends
    on what the table has then.
    """

    def __init__(self, lists: WrittenLists | None = None) -> None:
        self._lists = WrittenLists() if lists is None else lists
        self._id = uuid.uuid4().int >> 65  # a positive 63-bit number
        self.factory = ManifestFactory(self._id)
        self._merger = ManifestMerger(self.factory)
        self._manifests: dict[tuple[str, ...], list[ManifestFile]] = {}

    def append(self, table: Table, staged: Sequence[StagedCommit]) -> Snapshot:
        """Write a snapshot that adds the staged files to the current one."""
        prefix = _file_prefix(table, staged[0].writer)
        added = self._manifests_of(table, prefix, staged)
        held = self._merger.merge(table, prefix, self._lists.manifests_of(table), added)
        return self._snapshot(
            table, prefix, [*added, *held], _with_totals(Operation.APPEND, _summarize_append(staged), table)
        )

    def mark(self, table: Table, writer: WriterId, summary: Mapping[str, str]) -> Snapshot:
        """Write a snapshot of the current files. It moves the main branch, and says why in its summary."""
        held = manifests_of(table.io, table.current_snapshot())
        totals = _with_totals(Operation.APPEND, summary, table)
        return self._snapshot(table, _file_prefix(table, writer), held, totals)

    def replace(
        self, table: Table, prefix: str, manifests: Sequence[ManifestFile], schema_id: int, summary: Mapping[str, str]
    ) -> Snapshot:
        """Write a snapshot of the same rows in other files. `manifests` are all of its manifests."""
        return self._snapshot(table, prefix, manifests, _with_totals(Operation.REPLACE, summary, table), schema_id)

    def _snapshot(
        self,
        table: Table,
        prefix: str,
        manifests: Sequence[ManifestFile],
        summary: Summary,
        schema_id: int | None = None,
    ) -> Snapshot:
        metadata = table.metadata
        assert not isinstance(metadata, TableMetadataV1), "only tables of version 2 are bound"
        parent = metadata.current_snapshot()
        sequence_number = metadata.last_sequence_number + 1
        location = metadata_location(table, f"snap-{self._id}-{prefix}-{uuid.uuid4()}.avro")
        check_version(table)
        written = WrittenFile(table.io.new_output(location))
        with ManifestListWriter(
            output_file=written,
            snapshot_id=self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            compression=AVRO_COMPRESSION,
        ) as manifest_list:
            manifest_list.add_manifests(list(manifests))
        self._lists.add(table, written)
        return Snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            # Later than the metadata's own time. Java cannot read a table whose snapshot is older. At the same time,
            # PyIceberg takes the metadata for unchanged, and dates it by this machine's clock, which may be behind.
            timestamp_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
            manifest_list=location,
            summary=summary,
            schema_id=metadata.current_schema_id if schema_id is None else schema_id,
        )

    def _manifests_of(self, table: Table, prefix: str, staged: Sequence[StagedCommit]) -> list[ManifestFile]:
        # The prefix is part of the key: a manifest that is still to be committed must not be named by a passed value.
        # So is the schema: once a column has been converted, the commit has other files.
        key = (prefix, *(f"{commit.next} {commit.schema_id}" for commit in staged))
        if key not in self._manifests:
            by_spec = groupby(sorted(staged, key=lambda commit: commit.spec_id), key=lambda commit: commit.spec_id)
            self._manifests[key] = [
                self._write_manifest(table, prefix, spec_id, list(commits)) for spec_id, commits in by_spec
            ]
        # New objects, because writing a manifest list sets the sequence number in the objects that it gets. A later
        # attempt with the same objects would commit the files under an old number. Then deletes of other engines would
        # hide their rows.
        return [_fresh(manifest) for manifest in self._manifests[key]]

    def _write_manifest(self, table: Table, prefix: str, spec_id: int, staged: Sequence[StagedCommit]) -> ManifestFile:
        files = [file for commit in staged for file in files_of(table.io, commit.files)]
        return self.factory.of_added(table, prefix, spec_id, staged[-1].schema_id, files)


def _fresh(manifest: ManifestFile) -> ManifestFile:
    return ManifestFile(*(manifest[position] for position in range(len(manifest))))


def _file_prefix(table: Table, writer: WriterId) -> str:
    """Return the prefix with the writer's current fence value.

    The commit asserts the main branch that this value belongs to. Once the property has another value, the snapshot is
    committed or never will be.
    """
    return file_prefix(writer, str(table.metadata.table_uuid), fence.read_value(table.properties, writer))


def _summarize_append(staged: Sequence[StagedCommit]) -> dict[str, str]:
    """Say, for people, whose transaction this was. Expiry removes summaries, so the fence is a table property."""
    newest = staged[-1]
    return {
        "added-data-files": str(sum(commit.file_count for commit in staged)),
        "added-records": str(sum(commit.rows for commit in staged)),
        "added-files-size": str(sum(commit.size for commit in staged)),
        **writer_summary(newest.writer),
        SUMMARY_FENCE: newest.next,
        "flow.checkpoint": newest.checkpoint,
    }


def writer_summary(writer: WriterId) -> dict[str, str]:
    """Return the entries of a summary that name a writer."""
    return {
        SUMMARY_MATERIALIZATION: writer.materialization,
        SUMMARY_STATE_KEY: writer.state_key,
        SUMMARY_KEY_RANGE: writer.key_range,
    }


def _with_totals(operation: Operation, summary: Mapping[str, str], table: Table) -> Summary:
    parent = table.metadata.current_snapshot()
    before = parent.summary.additional_properties if parent and parent.summary else None
    # PyIceberg computes totals for all operations but this one.
    counted = Operation.OVERWRITE if operation is Operation.REPLACE else operation
    totals = update_snapshot_summaries(Summary(counted, **summary), before)
    return Summary(operation, **totals.additional_properties)


def file_prefix(writer: WriterId, table_uuid: str, prev: str) -> str:
    """Return the beginning of the names of files that are staged on a fence value; `FileOrigin` reads it.

    A property that was changed by hand never becomes part of a path.
    """
    value = prev if fence.is_recorded_value(prev) else FIRST
    return f"{fence.writer_hash(writer)}-{writer.key_range}-{table_uuid}-{value.replace(':', '-')}"


def find_file_prefix(table: Table, owner: Owner) -> str:
    """Return the prefix of files that no session writes, named after one of the owner's writers.

    A writer that is not closed is preferred: after its next commit, a session can tell whether the files are orphans.
    """
    whole = WriterId(owner.materialization, owner.state_key, WHOLE_RANGE.key_range)
    is_closed = {
        name.rpartition(".")[2]: value.startswith(fence.CLOSED)
        for name, value in table.properties.items()
        if name.startswith(f"{fence.PREFIX}{fence.writer_hash(whole)}.")
    }
    key_range = min(is_closed, key=lambda each: (is_closed[each], each), default=whole.key_range)
    return _file_prefix(table, WriterId(owner.materialization, owner.state_key, key_range))


@dataclass(frozen=True)
class FileOrigin:
    """What the name of one of our files says: its writer, its table, and the fence value that it was staged on."""

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
        value = "" if match["value"] == FIRST else match["value"].replace("-", ":")
        return cls(match["writer"], match["range"], match["table"], value)

    @property
    def property_name(self) -> str:
        """The table property that holds the fence value of the writer."""
        return f"{fence.PREFIX}{self.writer_hash}.{self.key_range}"
