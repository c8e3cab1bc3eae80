"""Defects of standard updates that the simulation has to find, each planted in the shipped code from outside."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from connector.encoding.lines.key_digest import digest_hashes
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import row_deletes
from connector.iceberg.commits.delete_files import DeleteChanges, DeleteFiles
from connector.iceberg.commits.row_deletes import DeletesOfCommit, RowDeletes
from connector.iceberg.metadata.listed_files import ListedFile, PositionDeletes
from connector.iceberg.metadata.partitions import Partition, PartitionReader
from connector.iceberg.session_views import SessionViews
from connector.iceberg.table_view import TableView
from connector.model.state import LocatedRowsFile, StagedCommit, TableId, WriterId
from connector.session import replaced_rows
from connector.spark.blocks.transaction_files import TableLayout
from connector.spark.jobs.write_job import Written
from connector.storage.file_io import files_of
from support import private_connector


def rows_that_have_moved_are_not_searched_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.FIND_NEWER_FILES, lambda *_: ())


def nothing_is_new_after_a_snapshot_that_has_expired(patch: pytest.MonkeyPatch) -> None:
    find = getattr(*private_connector.FIND_SEQUENCE_NUMBER)

    def last(files: private_connector.DataFiles, *found_in: Any) -> int:
        number = find(files, *found_in)
        newest = files._table.current_snapshot()
        return (newest and newest.sequence_number) or 0 if number == private_connector.NO_SEQUENCE_NUMBER else number

    patch.setattr(*private_connector.FIND_SEQUENCE_NUMBER, last)


def the_state_does_not_name_what_is_deleted(patch: pytest.MonkeyPatch) -> None:
    encode = getattr(*private_connector.ENCODE_COMMIT)
    patch.setattr(*private_connector.ENCODE_COMMIT, lambda commit: encode(replace(commit, located=None)))


def a_second_attempt_deletes_what_the_first_one_has_added(patch: pytest.MonkeyPatch) -> None:
    find = RowDeletes.find
    tried: set[tuple[int, str]] = set()

    def replay(deletes: RowDeletes, table: Table, staged: Sequence[StagedCommit], fitting: Any) -> DeletesOfCommit:
        rows, attempt = find(deletes, table, staged, fitting), (id(deletes), staged[-1].next)
        if attempt not in tried:
            tried.add(attempt)
            return rows
        own = {file.path: np.arange(file.rows) for file in files_of(table.io, staged[-1].files)}
        return replace(rows, positions={**rows.positions, **own})

    patch.setattr(RowDeletes, "find", replay)


def what_a_waiting_commit_has_added_is_not_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(row_deletes, "files_of", lambda *_: ())


def delete_files_of_an_earlier_attempt_are_used_again(patch: pytest.MonkeyPatch) -> None:
    write = DeleteFiles.write
    written: dict[DeleteFiles, DeleteChanges] = {}

    def once(files: DeleteFiles, *what: Any) -> DeleteChanges:
        if files not in written:
            written[files] = write(files, *what)
        return written[files]

    patch.setattr(DeleteFiles, "write", once)


def merged_delete_files_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.READ_DELETE_FILES, lambda *_: {})


def data_files_with_rows_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.HAS_NO_LIVE_ROWS, lambda merge, path, _: path in merge._rows.live)


def loads_are_answered_from_before_the_last_commit(patch: pytest.MonkeyPatch) -> None:
    find: Callable[..., TableView] = getattr(*private_connector.FIND_VIEW)
    known: dict[tuple[SessionViews, TableId], Table] = {}

    def stale(views: SessionViews, table_id: TableId, writer: WriterId, *keys: Any) -> TableView:
        if (views, table_id) not in known:
            known[views, table_id] = views._catalog.load_table(table_id[0])
            return find(views, table_id, writer, *keys)
        return views._views.make(known[views, table_id], views._find_pending(table_id, writer.key_range))

    patch.setattr(*private_connector.FIND_VIEW, stale)


def loads_do_not_see_what_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.SEARCH_STAGED_ROWS, lambda *_: ())


def loads_see_what_waiting_commits_delete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.FIND_DELETED_ROWS, lambda *_: {})


def loads_see_what_a_delete_file_of_several_data_files_deletes(patch: pytest.MonkeyPatch) -> None:
    def find_file_scoped(deletes: PositionDeletes, files: Iterable[ListedFile]) -> dict[str, list[ListedFile]]:
        return {
            data.path: [each for each in deletes.file_scoped.get(data.path, ()) if each.applies_to(data)]
            for data in files
        }

    patch.setattr(PositionDeletes, "find_all", find_file_scoped)


def loads_see_rows_of_a_former_key_range_in_any_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.CHECK_PREDECESSORS, lambda *_: None)


def rows_of_a_former_backfill_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundTable, "may_have_other_rows", False)


def delete_files_have_the_current_spec(patch: pytest.MonkeyPatch) -> None:
    write = DeleteFiles.write

    def in_current_spec(files: DeleteFiles, table: Table, *what: Any) -> DeleteChanges:
        changes, spec = write(files, table, *what), table.spec()
        record = Record(*(None for _ in spec.fields))
        added = (
            each
            if each.partition.spec_id == spec.spec_id
            else replace(each, partition=Partition.of(spec.spec_id, record))
            for each in changes.added
        )
        return replace(changes, added=tuple(added))

    patch.setattr(DeleteFiles, "write", in_current_spec)


def delete_files_have_the_partition_of_the_new_row(patch: pytest.MonkeyPatch) -> None:
    find = RowDeletes.find

    def of_new_row(deletes: RowDeletes, table: Table, staged: Sequence[StagedCommit], fitting: Any) -> Any:
        rows = find(deletes, table, staged, fitting)
        if not (files := files_of(table.io, staged[-1].files)):
            return rows
        partition = PartitionReader(table, staged[-1].spec_id).read(files[0])
        return replace(rows, partitions=dict.fromkeys(rows.partitions, partition))

    patch.setattr(RowDeletes, "find", of_new_row)


def rows_of_keys_that_were_loaded_and_not_stored_are_deleted(patch: pytest.MonkeyPatch) -> None:
    def keep(layout: TableLayout, located: LocatedRowsFile, written: Written, _: object) -> Any:
        return located, digest_hashes(written.existing_keys.get(layout.binding.index, ()))

    patch.setattr(replaced_rows, "leave_out_unstored", keep)


UPDATE_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    plant.__name__: plant
    for plant in (
        rows_that_have_moved_are_not_searched_again,
        nothing_is_new_after_a_snapshot_that_has_expired,
        the_state_does_not_name_what_is_deleted,
        a_second_attempt_deletes_what_the_first_one_has_added,
        what_a_waiting_commit_has_added_is_not_deleted,
        delete_files_of_an_earlier_attempt_are_used_again,
        merged_delete_files_are_forgotten,
        data_files_with_rows_are_dropped,
        loads_are_answered_from_before_the_last_commit,
        loads_do_not_see_what_waits,
        loads_see_what_waiting_commits_delete,
        loads_see_what_a_delete_file_of_several_data_files_deletes,
        loads_see_rows_of_a_former_key_range_in_any_order,
        rows_of_a_former_backfill_are_not_looked_for,
        delete_files_have_the_current_spec,
        delete_files_have_the_partition_of_the_new_row,
        rows_of_keys_that_were_loaded_and_not_stored_are_deleted,
    )
}
