"""What Iceberg's specification demands of a table's metadata, and Java's implementation relies on: more than PyIceberg
looks at when it reads."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TypeAlias

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.row_lineage import has_row_lineage
from crash.ledger import PromiseBrokenError
from support.engines.delete_partitions import find_misplaced
from support.engines.row_ids import find_problem_of_ids
from support.tables.vectors import find_problems_of_vectors

Metadata: TypeAlias = TableMetadataV2 | TableMetadataV3


def check_metadata(table: Table) -> None:
    """Raise what is wrong with anything that the metadata refers to, former snapshots included."""
    assert isinstance(table.metadata, TableMetadataV2 | TableMetadataV3)
    problems = [
        *_problems_of_snapshots(table.metadata),
        *_problems_of_logs(table.metadata),
        *(problem for snapshot in table.snapshots() for problem in _problems_of_manifests(table, snapshot)),
        *_problems_of_files(table),
        *find_misplaced(table),
    ]
    if problems:
        raise PromiseBrokenError(f"{table.name()[-1]}: wrong metadata: {'; '.join(dict.fromkeys(problems))}")


def _problems_of_snapshots(metadata: Metadata) -> Iterator[str]:
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    if metadata.refs[MAIN_BRANCH].snapshot_id != metadata.current_snapshot_id:
        yield "main is not the current snapshot"
    if len({_number(snapshot) for snapshot in metadata.snapshots}) < len(snapshots):
        yield "two snapshots have one sequence number"
    for snapshot in metadata.snapshots:
        if _number(snapshot) > metadata.last_sequence_number:
            yield f"sequence number {_number(snapshot)} is greater than the table's last"
        if snapshot.timestamp_ms > metadata.last_updated_ms:
            yield f"snapshot {_number(snapshot)} is younger than the metadata"
        parent = snapshots.get(snapshot.parent_snapshot_id or 0)
        if parent and parent.timestamp_ms > snapshot.timestamp_ms:
            yield f"snapshot {_number(snapshot)} is older than its parent"
        if parent and _number(parent) >= _number(snapshot):
            yield f"snapshot {_number(snapshot)} has no greater sequence number than its parent"


def _problems_of_logs(metadata: Metadata) -> Iterator[str]:
    for name, log in ("snapshot", metadata.snapshot_log), ("metadata", metadata.metadata_log):
        times = [*(entry.timestamp_ms for entry in log), metadata.last_updated_ms]
        if any(later < earlier for earlier, later in pairwise(times)):
            yield f"the {name} log is not in the order of time"
    if metadata.snapshot_log[-1].snapshot_id != metadata.current_snapshot_id:
        yield "the snapshot log does not end with the current snapshot"


def _problems_of_manifests(table: Table, snapshot: Snapshot) -> Iterator[str]:
    io, numbers = table.io, {_number(each) for each in table.snapshots()}
    for manifest in _manifests(io, snapshot):
        number = manifest.sequence_number
        name = f"manifest {manifest.manifest_path.rpartition('/')[2]} of snapshot {_number(snapshot)}"
        if manifest.manifest_length != len(io.new_input(manifest.manifest_path)):
            yield f"{name} has another length"
        if number > _number(snapshot) or (manifest.added_snapshot_id == snapshot.snapshot_id) != (
            number == _number(snapshot)
        ):
            yield f"{name} has sequence number {number}"
        entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
        if _counts(entries) != (
            manifest.added_files_count,
            manifest.existing_files_count,
            manifest.deleted_files_count,
        ):
            yield f"{name} has other files than its list says"
        for entry in entries:
            is_added = entry.status == ManifestEntryStatus.ADDED and not _replaces(table, manifest)
            own, is_data = entry.sequence_number or 0, entry.data_file.content is DataFileContent.DATA
            if is_added and not (_is_of_commit(own, number, numbers) if is_data else own == number):
                yield f"{name} adds a file under sequence number {entry.sequence_number}"
            if (
                entry.status != ManifestEntryStatus.DELETED
                and (entry.sequence_number or 0) < manifest.min_sequence_number
            ):
                yield f"{name} has a file that is older than its list says"


def _is_of_commit(own: int, number: int, numbers: Collection[int]) -> bool:
    """Whether a file's sequence number is one of its commit. A commit of several transactions has a number for each,
    of which its snapshot has the last. No other commit has a number between these."""
    return 0 < own <= number and not any(own <= each < number for each in numbers)


def _replaces(table: Table, manifest: ManifestFile) -> bool:
    """Whether its files have the rows of others, which keep their sequence numbers."""
    summaries = {snapshot.snapshot_id: snapshot.summary for snapshot in table.snapshots()}
    summary = summaries.get(manifest.added_snapshot_id or 0)
    return summary is not None and summary.operation is Operation.REPLACE


def _counts(entries: list[ManifestEntry]) -> tuple[int, int, int]:
    counts = Counter(entry.status for entry in entries)
    return (
        counts[ManifestEntryStatus.ADDED],
        counts[ManifestEntryStatus.EXISTING],
        counts[ManifestEntryStatus.DELETED],
    )


def _problems_of_files(table: Table) -> Iterator[str]:
    """What manifests say of the data files that are read now."""
    listed = [entry.data_file for entry in live_entries(table)]
    files = [file for file in listed if file.file_format is not FileFormat.PUFFIN]
    if len({file.file_path for file in files}) < len(files):
        yield "a data file is in the table twice"
    if len(files) < len(listed):
        yield from find_problems_of_vectors(table)
    if has_row_lineage(table):
        data = (file for file in ManifestCache().list_files(table) if file.content is DataFileContent.DATA)
        if problem := find_problem_of_ids((file.path, file.first_row_id, file.rows) for file in data):
            yield problem
    for file in files:
        source = table.io.new_input(file.file_path)
        with source.open() as stream:
            parquet = pq.read_metadata(stream)
        name = f"data file {file.file_path.rpartition('/')[2]}"
        if file.file_size_in_bytes != len(source):
            yield f"{name} has another size"
        if file.record_count != parquet.num_rows:
            yield f"{name} has {parquet.num_rows} rows, not {file.record_count}"
        if file.split_offsets and file.split_offsets != _row_groups(parquet):
            yield f"{name} has its row groups elsewhere"


def live_entries(table: Table) -> list[ManifestEntry]:
    """What the table consists of now, with the sequence numbers that entries inherit."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry for manifest in _manifests(table.io, snapshot) for entry in manifest.fetch_manifest_entry(table.io)]


def _row_groups(parquet: pq.FileMetaData) -> list[int]:
    chunks = [parquet.row_group(group).column(0) for group in range(parquet.num_row_groups)]
    return [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]


def _manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    return list(read_manifest_list(io.new_input(snapshot.manifest_list)))


def _number(snapshot: Snapshot) -> int:
    assert snapshot.sequence_number is not None
    return snapshot.sequence_number
