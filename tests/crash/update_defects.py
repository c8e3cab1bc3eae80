"""What could be wrong with standard updates: how rows are found and deleted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connector.encoding.values.arrays import Positions
from connector.iceberg import table_view
from connector.iceberg.commits import snapshot
from connector.iceberg.commits.delete_files import DeleteChanges, DeleteFiles
from connector.iceberg.commits.row_deletes import RowDeletes, _DataFiles
from connector.iceberg.fences import fence
from connector.iceberg.metadata import listed_files
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.table_view import TableView, ViewFactory
from connector.model.state import StagedCommit
from crash.faults import swap
from support import private_connector


def trusts_old_positions() -> None:
    swap(*private_connector.SEARCH_ROWS, _find_nothing)


def loses_deletes() -> None:
    swap(DeleteFiles, "write", lambda *_: DeleteChanges())


def deletes_again() -> None:
    """A commit that the table has is repeated, without its files: the keys' rows are new by now."""
    remaining_commits = fence.remaining_commits

    def remaining_deletes(pending: Sequence[StagedCommit], properties: Mapping[str, str]) -> Sequence[StagedCommit]:
        again = [replace(commit, files=()) for commit in pending if commit.is_recovered and commit.located]
        return remaining_commits(pending, properties) or again

    swap(fence, "remaining_commits", remaining_deletes)


def loads_from_before_the_last_commit() -> None:
    view = ViewFactory.make
    before: dict[Any, TableView] = {}

    def view_late(self: ViewFactory, table: Table, pending: Sequence[StagedCommit], **_: Any) -> TableView:
        found = view(self, table, pending)  # with all files, whatever the keys are
        late = before.get(table.name(), found)
        before[table.name()] = found
        return late

    swap(ViewFactory, "make", view_late)


def loads_without_what_waits() -> None:
    swap(*private_connector.REMAINING_COMMITS_OF_VIEW, lambda *_: [])


def loads_what_others_have_moved() -> None:
    """Rows that a pending commit deletes."""

    class OldPlaces(RowDeletes):
        def _search(self, *_: Any, **__: Any) -> Iterator[tuple[str, Positions]]:
            return _find_nothing()

    swap(table_view, "RowDeletes", OldPlaces)


def takes_files_for_old() -> None:
    """If the snapshot in which rows were found is gone."""
    find = _DataFiles.find_sequence_number

    def find_or_guess(self: _DataFiles, *about: Any) -> int:
        number = find(self, *about)
        return number if number >= 0 else 1 << 60

    swap(_DataFiles, "find_sequence_number", find_or_guess)


def note_own_snapshots() -> set[int]:
    """A set that gets the id of each snapshot that this process writes."""
    ours: set[int] = set()
    append = snapshot.SnapshotWriter.append

    def append_ours(self: Any, *arguments: Any) -> Snapshot:
        appended = append(self, *arguments)
        ours.add(appended.snapshot_id)
        return appended

    swap(snapshot.SnapshotWriter, "append", append_ours)
    return ours


def drops_deletes_of_others() -> None:
    ours = note_own_snapshots()

    def without_others(*about: Any) -> list[Any]:
        found = manifests_of(*about)
        return [each for each in found if each.content is ManifestContent.DATA or each.added_snapshot_id in ours]

    for module in (snapshot, listed_files):
        swap(module, "manifests_of", without_others)


def deletes_in_another_partition() -> None:
    add = DeleteFiles.add

    def misplaced(
        files: DeleteFiles, table: Any, prefix: str, positions: Any, partitions: Any, merged: Any = ()
    ) -> Any:
        added = add(files, table, prefix, positions, partitions, merged)
        return tuple(
            replace(deletes, partition=next((each for each in partitions.values() if _is_other(each, own)), own))
            for deletes in added
            for own in [deletes.partition]
        )

    swap(DeleteFiles, "add", misplaced)


def _is_other(partition: Partition, than: Partition) -> bool:
    return partition.spec_id == than.spec_id and partition != than


def forgets_older_positions() -> None:
    """Of a deletion vector."""
    read = getattr(*private_connector.LIST_POSITIONS)

    def read_no_vector(self: Any, file: ListedFile) -> Any:
        return [] if file.vector else read(self, file)

    swap(*private_connector.LIST_POSITIONS, read_no_vector)


def keeps_replaced_vectors() -> None:
    perform = getattr(*private_connector.MERGE_DELETE_FILES)

    def perform_half(self: Any) -> tuple[Any, list[ListedFile]]:
        positions, removed = perform(self)
        return positions, [file for file in removed if not file.vector]

    swap(*private_connector.MERGE_DELETE_FILES, perform_half)


def _find_nothing(*_: Any) -> Iterator[tuple[str, Positions]]:
    return iter(())


DEFECTS = {
    defect.__name__: defect
    for defect in (
        trusts_old_positions,
        loses_deletes,
        deletes_again,
        loads_from_before_the_last_commit,
        loads_without_what_waits,
        loads_what_others_have_moved,
        takes_files_for_old,
        drops_deletes_of_others,
        deletes_in_another_partition,
        forgets_older_positions,
        keeps_replaced_vectors,
    )
}
