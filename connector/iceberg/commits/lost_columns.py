"""Refuses files for columns that another engine has dropped or retyped since: their rows would land without these
values, or with values that no reader understands."""

from collections.abc import Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from connector.host.errors import LostColumnError, UserError
from connector.iceberg.commits import late_files
from connector.model.state import StagedCommit
from connector.storage.file_lists import files_of

_WIDER: Final = frozenset({(IntegerType(), LongType()), (FloatType(), DoubleType())})


def check_columns(table: Table, staged: Sequence[StagedCommit]) -> None:
    """UserError where files would make the table unreadable; LostColumnError where a session writes a dropped
    column."""
    for commit in staged:
        written = table.schemas().get(commit.schema_id)
        if written and commit.schema_id != table.metadata.current_schema_id:
            _check(table, commit, written)


def _check(table: Table, commit: StagedCommit, written: Schema) -> None:
    held = {column.field_id for file in files_of(table.io, commit.files) for column in file.columns}
    now = {column.field_id: column for column in table.schema().fields}
    for column in written.fields:
        if column.field_id not in held or late_files.is_converted(table, column.field_id):
            continue
        if current := now.get(column.field_id):
            if not _is_read_as(column.field_type, current.field_type):
                raise UserError(_describe_change(commit, column, current))
        # What the log has committed still lands: the next session names the column when it opens.
        elif not commit.is_recovered:
            raise LostColumnError(_describe_loss(commit, column))


def _is_read_as(written: IcebergType, current: IcebergType) -> bool:
    if isinstance(written, DecimalType) and isinstance(current, DecimalType):
        return written.scale == current.scale and written.precision <= current.precision
    return written == current or (written, current) in _WIDER


def _describe_change(commit: StagedCommit, written: NestedField, current: NestedField) -> str:
    return (
        f"table {'.'.join(commit.path)}: another engine has made column {current.name!r} {current.field_type}, which "
        f"was {written.field_type} when {commit.rows} rows were staged: nobody could read them. They were added "
        "nowhere, and stay in the task's state: give the column its type back, or backfill the binding, which begins "
        "with a new table."
    )


def _describe_loss(commit: StagedCommit, column: NestedField) -> str:
    return (
        f"table {'.'.join(commit.path)}: another engine has dropped column {column.name!r}, which the task writes: "
        f"publish the task again to have it added anew, or deselect its field. The {commit.rows} rows that are staged "
        "land without their values of it when the task starts again."
    )
