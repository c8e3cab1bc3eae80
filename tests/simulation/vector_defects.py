"""Defects in tables of format version 3 that the simulation has to find, each planted from outside the shipped code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest
from pyiceberg.manifest import ManifestFile

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.deletion_vectors import DeletionVector
from connector.iceberg.commits import delete_files, delete_merging
from connector.iceberg.metadata import manifests, row_lineage
from connector.iceberg.metadata.listed_files import ListedFile
from simulation import searching
from support import private_connector


def a_replaced_vector_stays(patch: pytest.MonkeyPatch) -> None:
    perform = getattr(*private_connector.MERGE_DELETE_FILES)

    def keep(merge: Any) -> tuple[Any, list[ListedFile]]:
        positions, removed = perform(merge)
        return positions, [file for file in removed if not file.vector or file.vector.data_path not in positions]

    patch.setattr(*private_connector.MERGE_DELETE_FILES, keep)


def position_deletes_of_one_file_are_not_taken_over(patch: pytest.MonkeyPatch) -> None:
    read = getattr(*private_connector.LIST_FILE_SCOPED_DELETES)
    patch.setattr(
        *private_connector.LIST_FILE_SCOPED_DELETES, lambda *what: [file for file in read(*what) if file.vector]
    )


def position_delete_files_are_written_in_version_3(patch: pytest.MonkeyPatch) -> None:
    for module in (delete_files, delete_merging):
        patch.setattr(module, "has_deletion_vectors", lambda _: False)


def loads_see_what_vectors_delete(patch: pytest.MonkeyPatch) -> None:
    find = deleted_rows.find_deleted_rows

    def without(io: Any, path: str, deletes: tuple[Any, ...] = (), *others: Any) -> Any:
        return find(io, path, tuple(each for each in deletes if not isinstance(each, DeletionVector)), *others)

    patch.setattr(searching, "find_deleted_rows", without)


def row_ids_are_given_twice(patch: pytest.MonkeyPatch) -> None:
    """To the rows of all manifests that are new in a snapshot."""

    def assign(manifests: Sequence[ManifestFile], next_row_id: int) -> int:
        ends = [row_lineage.assign_row_ids([manifest], next_row_id) for manifest in manifests]
        return max(ends, default=next_row_id)

    patch.setattr(manifests, "assign_row_ids", assign)


VECTOR_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    plant.__name__: plant
    for plant in (
        a_replaced_vector_stays,
        position_deletes_of_one_file_are_not_taken_over,
        position_delete_files_are_written_in_version_3,
        loads_see_what_vectors_delete,
        row_ids_are_given_twice,
    )
}
