"""Compacts a file group: writes the live rows of its sources to new files, in bounded memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.lineage_columns import fill_lineage, lineage_columns
from connector.encoding.live_rows.source_rows import SourceFile, open_source, read_live_rows_of
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.parquet.assembled_writer import AssembledWriter
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, GatheredRowGroup, abort_on_failure
from connector.encoding.rewriting.copied_row_groups import copy_row_group
from connector.encoding.rewriting.file_groups import CompactedGroup, FileGroup
from connector.encoding.rewriting.group_writer import GroupWriter
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema


def compact_group(io: FileIO, target: TargetFiles, group: FileGroup) -> CompactedGroup:
    """Write the live rows of a group's sources to new files. If this fails, no file stays, as far as possible.

    Without an arrangement, the rows keep the order of the sources.
    """
    target = replace(target, columns=group.add_defaults(target.columns))
    if target.arrangement.is_plain:
        copying = GroupWriter(io, target, group, AssembledWriter)
        return _write(copying, group, lambda: [_copy(io, target, source, copying) for source in group.sources])
    from connector.encoding.rewriting.arranged_compaction import write_arranged

    arranging = GroupWriter(io, target, group, partial(DataFileWriter, row_group=GatheredRowGroup(ROW_GROUP_SIZE)))
    return _write(arranging, group, lambda: write_arranged(io, target, group, arranging))


def _write(writer: GroupWriter[Any], group: FileGroup, write: Callable[[], Sequence[int]]) -> CompactedGroup:
    """Write the rows of a group. `write` returns how many rows of each source they are."""
    with abort_on_failure(writer):
        kept = write()
        written, order = writer.finish()
    return CompactedGroup(group, written, tuple(kept), order)


def _copy(io: FileIO, target: TargetFiles, source: SourceFile, writer: GroupWriter[AssembledWriter]) -> int:
    """Write the live rows of a source, and return their number."""
    kept = first = 0
    deleted = find_deleted_rows(io, source.path, source.position_deletes)
    with open_source(io, source, len(target.columns), target.mapping) as opened:
        columns = (*target.columns, *lineage_columns(source.lineage))
        schema = RewrittenSchema.of(columns, opened.schema, source)
        for group in range(opened.file.num_row_groups):
            count = opened.file.metadata.row_group(group).num_rows
            begin, end = np.searchsorted(deleted, (first, first + count))
            copied = copy_row_group(opened, schema, group, writer.options) if begin == end else None
            if copied:
                numbered = fill_lineage(copied.rows, source.lineage, np.arange(first, first + count))
                writer.find_writer(schema).copy(replace(copied, rows=numbered))
            else:
                for rows in read_live_rows_of(opened, group, first, deleted):
                    if rows.batch.num_rows:
                        writer.find_writer(schema).write(schema.convert(rows))
            kept += count - int(end - begin)
            first += count
    return kept
