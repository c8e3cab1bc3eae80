"""Makes late files fit their table, or refuses them.

Late files were staged before a column of their table was converted, retyped or dropped. Where the connector has
converted a column, late files are rewritten, so that their values are kept. Apply commits the staged files before it
alters a table. But not every runtime gives it the state, and a session may still be writing.

Where another engine has retyped a column, or requires values that are missing, late files are refused: no reader could
read the table. If it has dropped a column, their rows are added without its values. But with standard updates, they are
refused if the column had a part of the key, or the document: a Load would not find the rows, or could not answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from posixpath import basename
from typing import Final, TypeAlias

import msgspec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_columns import open_data_file
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.converted_files import rewrite_converted
from connector.encoding.rewriting.rewritten_schemas import UnconvertibleError
from connector.host.errors import BACKFILL, LostColumnError, UnfitCommitError
from connector.iceberg.metadata.table_arrangement import keep_sort_order
from connector.iceberg.metadata.table_properties import find_newest_column, is_converted, read_successors
from connector.model.binding import Updates
from connector.model.state import DataFile, StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import files_of

_END_OF_NAME: Final = len("-00000000-0000-0000-0000-000000000000.parquet")
_WIDER: Final = frozenset({(IntegerType(), LongType()), (FloatType(), DoubleType())})


# The files that late files were rewritten into: all attempts of the commits use them.
ConvertedFiles: TypeAlias = dict[tuple[TargetFiles, str], tuple[DataFile, ...]]


def fit_late_files(table: Table, staged: Sequence[StagedCommit], rewritten: ConvertedFiles) -> list[StagedCommit]:
    """Return the commits of one writer, with files that fit the table. `rewritten` gets the files that are rewritten.

    UnfitCommitError if files would make the table unreadable, if a value cannot be converted, or if rows would lose
    their key or their document; LostColumnError if this session writes to a dropped column.
    """
    for commit in staged:
        if commit.schema_id != table.metadata.current_schema_id and (files := files_of(table.io, commit.files)):
            written = table.schemas().get(commit.schema_id) or _read_schema(table, files[0])
            _check(table, commit, files, written)
            _check_required(table, commit, files, written)
    return [_convert(table, commit, rewritten) for commit in staged]


def _convert(table: Table, commit: StagedCommit, rewritten: ConvertedFiles) -> StagedCommit:
    files, successors = files_of(table.io, commit.files), read_successors(table)
    if not any(column.field_id in successors for file in files for column in file.columns):
        return commit
    fitting = tuple(new for file in files for new in _rewrite(table, file, rewritten))
    sort_order_id = keep_sort_order(table, commit.sort_order_id, successors)
    return replace(commit, files=fitting, schema_id=table.metadata.current_schema_id, sort_order_id=sort_order_id)


def _rewrite(table: Table, file: DataFile, rewritten: ConvertedFiles) -> tuple[DataFile, ...]:
    columns = tuple(_find_target_columns(table, file))
    # The new file's name begins like the old one's: as orphans, both are deleted at the same time.
    target = TargetFiles(columns, Destination.of_table(table, basename(file.path)[:-_END_OF_NAME]))
    key = target, file.path
    if key not in rewritten:
        try:
            new = rewrite_converted(table.io, target, SourceFile(file.path, file.size))
        except UnconvertibleError as error:
            raise _explain_unconvertible(table, file, error) from error
        rewritten_files = (msgspec.structs.replace(each, partition=file.partition) for each in new or ())
        rewritten[key] = (file,) if new is None else tuple(rewritten_files)
    return rewritten[key]


def _find_target_columns(table: Table, file: DataFile) -> Iterable[TargetColumn]:
    current, before = _index_columns(table.schema()), _index_written(table, file)
    for column in file.columns:
        newest = find_newest_column(table, column.field_id)
        if newest in current:
            yield TargetColumn.of(current[newest], before[column.field_id])


def _index_written(table: Table, file: DataFile) -> dict[int, NestedField]:
    """Return the columns of a file by their ids, as the table's schemas describe them."""
    before = _index_columns(*table.metadata.schemas)
    has_all = all(column.field_id in before for column in file.columns)
    return before if has_all else _index_columns(_read_schema(table, file)) | before


def _read_schema(table: Table, file: DataFile) -> Schema:
    """Read the columns that a file was written with. Another engine may have removed their schema from the metadata: it
    has expired all snapshots with this schema."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema  # takes long to import, and is rarely needed

    with open_data_file(table.io, file.path, file.size) as reader:
        columns = reader.footer.schema.to_arrow_schema()
    return pyarrow_to_schema(columns, format_version=table.metadata.format_version)


def _index_columns(*schemas: Schema) -> dict[int, NestedField]:
    """Return the columns by their ids. If schemas differ, the newest one counts. The metadata has them in any order."""
    ordered = sorted(schemas, key=lambda each: each.schema_id)
    return {column.field_id: column for schema in ordered for column in schema.fields}


def _explain_unconvertible(table: Table, file: DataFile, error: UnconvertibleError) -> UnfitCommitError:
    before = _index_written(table, file)
    names = ", ".join(repr(before[column_id].name) for column_id in sorted(error.column_ids))
    return UnfitCommitError(
        f"table {TableIdentifier.of(table)}: {file.rows} rows were staged before their column {names} was converted to "
        "another type, and have values without an equivalent of that type. They were not added, and stay in the task's "
        f"state. {BACKFILL.capitalize()}."
    )


def _check(table: Table, commit: StagedCommit, files: Iterable[DataFile], written: Schema) -> None:
    held = {column.field_id for file in files for column in file.columns}
    now = _index_columns(table.schema())
    for column in written.fields:
        if column.field_id not in held:
            continue
        newest = find_newest_column(table, column.field_id)
        if current := now.get(newest):
            if newest == column.field_id and not _is_read_as(column.field_type, current.field_type):
                raise UnfitCommitError(_describe_change(commit, column, current))
        elif role := _find_role(commit.updates, column):
            text = _describe_needed(commit, column, role)
            raise UnfitCommitError(text) if commit.is_recovered else LostColumnError(text)
        # Rows that the runtime's log has committed are still added. The next session names the column when it opens.
        elif not (commit.is_recovered or is_converted(table, column.field_id)):
            raise LostColumnError(_describe_loss(commit, column))


def _find_role(updates: Updates | None, column: NestedField) -> str:
    """Return what standard updates need a column for; "" if for nothing."""
    if updates and column.field_id == updates.document_id:
        return "the root document"
    return "a part of the key" if updates and column.field_id in {part.column_id for part in updates.parts} else ""


def _check_required(table: Table, commit: StagedCommit, files: Iterable[DataFile], written: Schema) -> None:
    were_required = {find_newest_column(table, column.field_id) for column in written.fields if column.required}
    for column in table.schema().fields:
        if column.required and column.initial_default is None and column.field_id not in were_required:
            for file in files:
                found = {find_newest_column(table, each.field_id): each.nulls for each in file.columns}
                if found.get(column.field_id) != 0:
                    raise UnfitCommitError(_describe_missing_values(commit, column))


def _is_read_as(written: IcebergType, current: IcebergType) -> bool:
    if isinstance(written, DecimalType) and isinstance(current, DecimalType):
        return written.scale == current.scale and written.precision <= current.precision
    return written == current or (written, current) in _WIDER


def _describe_change(commit: StagedCommit, written: NestedField, current: NestedField) -> str:
    return (
        f"table {commit.path}: another engine has changed column {current.name!r} from {written.field_type} to "
        f"{current.field_type} after {commit.rows} rows were staged: no reader could read them. They were not added, "
        f"and stay in the task's state. Give the column its type back, or {BACKFILL}."
    )


def _describe_loss(commit: StagedCommit, column: NestedField) -> str:
    return (
        f"table {commit.path}: another engine has dropped column {column.name!r}, which the task writes. Publish the "
        f"task again to add the column anew, or deselect its field. The {commit.rows} staged rows are added without "
        "their values of this column when the task starts again."
    )


def _describe_needed(commit: StagedCommit, column: NestedField, role: str) -> str:
    return (
        f"table {commit.path}: another engine has dropped column {column.name!r}, which has {role}. Standard updates "
        f"need it to find rows and to read them back. The {commit.rows} rows that were staged before were not added, "
        "and stay in the task's state. Make an earlier schema of the table, which has the column, its current schema "
        f"again. Or {BACKFILL}."
    )


def _describe_missing_values(commit: StagedCommit, column: NestedField) -> str:
    return (
        f"table {commit.path}: another engine requires values for column {column.name!r} now, and some of the "
        f"{commit.rows} rows that were staged before have none: no reader could read them. They were not added, and "
        f"stay in the task's state. Make the column optional, or {BACKFILL}."
    )
