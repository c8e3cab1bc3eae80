"""Data files that were staged before one of their columns was converted: rewritten, so that they land with their
values.

Apply commits what the state names before it alters a table, but not every runtime gives it the state, and a session may
still be writing. So a table records which columns have taken the place of which.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from connector.encoding.rewriting import Rewriting, SourceFile, TargetColumn, UnconvertibleError
from connector.evolution.altered_schema import ConvertedColumn
from connector.host.errors import LostColumnError, UserError
from connector.iceberg.metadata.references import file_name
from connector.iceberg.metadata.table_properties import name_table_in_errors
from connector.model.state import DataFile, StagedCommit
from connector.storage.file_lists import files_of

PREFIX: Final = "flow.converted."
_END_OF_NAME: Final = len("-00000000-0000-0000-0000-000000000000.parquet")
_WIDER: Final = frozenset({(IntegerType(), LongType()), (FloatType(), DoubleType())})


def record_conversions(converted: Iterable[ConvertedColumn]) -> dict[str, str]:
    """The table properties that record a conversion."""
    return {f"{PREFIX}{column.old.field_id}": str(column.new.field_id) for column in converted}


def is_converted(table: Table, column_id: int) -> bool:
    """Whether another column has taken the place of this one, with its values."""
    return f"{PREFIX}{column_id}" in table.properties


class LateFiles:
    """One chain's late files, rewritten once for all attempts."""

    def __init__(self) -> None:
        self._rewritten: dict[tuple[Rewriting, str], tuple[DataFile, ...]] = {}

    def convert(self, table: Table, staged: Sequence[StagedCommit]) -> Sequence[StagedCommit]:
        """The same commits, with files that fit the table."""
        with name_table_in_errors(table):
            successors = dict(_successors(table.properties))
        return [self._commit(table, commit, successors) for commit in staged] if successors else staged

    def _commit(self, table: Table, commit: StagedCommit, successors: Mapping[int, int]) -> StagedCommit:
        files = files_of(table.io, commit.files)
        if not any(column.field_id in successors for file in files for column in file.columns):
            return commit
        fitting = tuple(new for file in files for new in self._files(table, file, successors))
        return replace(commit, files=fitting, schema_id=table.metadata.current_schema_id)

    def _files(self, table: Table, file: DataFile, successors: Mapping[int, int]) -> tuple[DataFile, ...]:
        columns = tuple(_target_columns(table, [column.field_id for column in file.columns], successors))
        # Named like the old file, so that in the end both are collected or kept alike.
        rewriting = Rewriting.of_table(table, columns, file_name(file.path)[:-_END_OF_NAME])
        key = rewriting, file.path
        if key not in self._rewritten:
            try:
                rewritten = rewriting.rewritten(table.io, SourceFile(file.path, file.size))
            except UnconvertibleError as error:
                raise _unconvertible(table, file, error) from error
            self._rewritten[key] = (file,) if rewritten is None else rewritten
        return self._rewritten[key]


def _successors(properties: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """The ids of converted columns, and of those that have taken their places."""
    for name, value in properties.items():
        if name.startswith(PREFIX):
            try:
                yield int(name.removeprefix(PREFIX)), int(value)
            except ValueError as error:
                raise ValueError(f"{name} is {value!r}; it must name one column's id by another's") from error


def _target_columns(table: Table, held: Iterable[int], successors: Mapping[int, int]) -> Iterable[TargetColumn]:
    current, before = _columns(table.schema()), _columns(*table.metadata.schemas)
    for column_id in held:
        newest = column_id
        while newest in successors:
            newest = successors[newest]
        if newest in current and column_id in before:
            yield TargetColumn.of(current[newest], before[column_id])


def _columns(*schemas: Schema) -> dict[int, NestedField]:
    """By their ids; a later schema's wins."""
    return {column.field_id: column for schema in schemas for column in schema.fields}


def _unconvertible(table: Table, file: DataFile, error: UnconvertibleError) -> UserError:
    before = _columns(*table.metadata.schemas)
    names = ", ".join(repr(before[column_id].name) for column_id in sorted(error.column_ids))
    return UserError(
        f"table {'.'.join(table.name())}: {file.rows} rows were staged before their column {names} was converted to "
        "another type, and hold values that have no equivalent. They were added nowhere, and stay in the task's state: "
        "backfill the binding, which begins with a new table."
    )


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
        if column.field_id not in held or is_converted(table, column.field_id):
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
