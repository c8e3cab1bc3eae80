"""The Loads of one transaction: gathers keys, searches the tables for them, and answers with their documents.

Each found row is also located: its file and its position are staged with the transaction. If a Store with the next
version follows, the commit deletes the row.
"""

import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.lines.key_digest import KeyDigest, digest_hashes, digest_keys_table, sum_digests
from connector.encoding.lines.keys_tables import KEY, take_keys
from connector.encoding.lines.load_lines import keys_table_of_loads, parse_loads
from connector.encoding.lines.row_lines import Lines
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID, ROW_ID_FIELD
from connector.encoding.search.last_changes import find_last_changes
from connector.encoding.search.located_rows import describe_rows, write_located
from connector.encoding.search.rows_of_keys import RowsOfKeys, choose_newest
from connector.encoding.search.searched_keys import KEYS_AT_ONCE
from connector.encoding.values.arrays import Mask
from connector.host import facts
from connector.host.facts import AnsweredLoads
from connector.host.groups import divide
from connector.host.tempdirs import translate_disk_errors
from connector.host.threads import StartedCalls, map_in_threads
from connector.iceberg.table_view import TableView
from connector.model.binding import Binding
from connector.model.state import LocatedRowsFile
from connector.spark.blocks.stored_keys import GatheredKeys, store_keys
from connector.spark.blocks.transaction_files import (
    Layouts,
    LocalFile,
    StoredObject,
    TableLayout,
    TemporaryFile,
    delete_unstaged,
    warn_if_left,
)
from connector.spark.jobs.search_job import (
    RESULTS,
    SearchGroup,
    divide_files,
    fetch_rows,
    read_documents,
    read_lines,
    search_in_jobs,
)
from connector.spark.jobs.write_job import Written
from connector.spark.jvm.spark_session import Spark
from connector.storage.file_io import LARGEST_HELD, write_later
from protocol.protocol_error import ProtocolError
from protocol.request import Load

FindView: TypeAlias = Callable[[pa.Table], TableView]  # by a keys table: SessionViews.find

GATHERED: Final = 8 << 20  # bytes of keys of all tables that are in memory while Loads come
GATHERED_OF_TABLE: Final = 64 << 10  # for each of very many tables: less would be many small writes
ROW_IDS: Final = "row ids of loaded keys"


@dataclass(frozen=True)
class SearchedTable:
    """A table whose binding updates rows in place, and how it is searched."""

    binding: Binding
    find_view: FindView


@dataclass(frozen=True)
class TableSearch:
    """The search of one table: the keys of all its Loads, and the files that may have them."""

    table: SearchedTable
    view: TableView
    keys: pa.Table
    keys_file: TemporaryFile
    groups: tuple[SearchGroup, ...]

    @property
    def index(self) -> int:
        """The index of the table's binding."""
        return self.table.binding.index


@dataclass(frozen=True)
class FoundInTable:
    """What the search of one table has found, and which rows are the newest of their keys."""

    search: TableSearch
    rows: Sequence[RowsOfKeys]  # of each of its groups
    newest: Sequence[Mask]


@dataclass(frozen=True)
class LoadedRows:
    """What the Loads of one binding have found. If it is nothing, `located` says only in which snapshot."""

    located: LocatedRowsFile
    answered: KeyDigest  # of the keys whose documents were returned; once staged, without those that were not stored
    row_ids: TemporaryFile | None = None  # of these keys; None: the rows have no ids


class TransactionLoads:
    """The Loads of one transaction, of all bindings."""

    def __init__(self, spark: Spark, directory: Path, tables: Mapping[int, SearchedTable], layouts: Layouts) -> None:
        """`tables` are those of the bindings that update rows, by the binding's index."""
        self._spark = spark
        self._directory = directory
        self._tables = tables
        self._layouts = layouts
        self._keys: dict[int, GatheredKeys] = {}
        self._uploads = StartedCalls(LARGEST_HELD)
        self._objects = defaultdict[int, list[str]](list)  # in the store: the locations of all, by binding
        self.began = time.monotonic()  # with the first Load
        self.count = 0
        self.found: dict[int, LoadedRows] = {}

    def add(self, loads: Load) -> None:
        """Receive a run of Loads. Raises ProtocolError if a line is no Load, or its binding never loads."""
        if not self.count:
            with translate_disk_errors("file for the keys of Loads"):
                self._directory.mkdir()
        self.count += loads.count
        lines = Lines(b"".join(loads.pieces), lambda index: loads.first_line + index)
        for index, of_binding in parse_loads(lines).items():
            keys = keys_table_of_loads(self._find_binding(index, of_binding.number(0)), of_binding)
            if index not in self._keys:
                self._keys[index] = GatheredKeys(self._directory / f"{index}.keys")
            self._keys[index].add(keys)
        limit = max(GATHERED, GATHERED_OF_TABLE * len(self._keys))
        while sum(each.size for each in self._keys.values()) > limit:
            max(self._keys.values(), key=attrgetter("size")).move_to_disk()

    def answer(self) -> Iterator[bytes]:
        """Yield the text of the answers: finished lines, one for each key that has a document. A part may end within a
        line."""
        # The tables of some bindings are searched together.
        bindings = sorted(self._keys)
        for indexes in divide(bindings, KEYS_AT_ONCE, self._count_keys):
            yield from self._answer(indexes)

    def check(self) -> None:
        """Raise the error of an upload of what was found, if one has failed. This costs nearly nothing."""
        self._uploads.check()

    def stage(self, written: Written) -> None:
        """Return when the rows that the transaction replaces are staged durably. What was found is uploaded while the
        runtime stores rows.

        Raises ProtocolError if a loaded key was stored without `exists`, and RetryableError if the key columns do not
        tell which keys were stored.
        """
        self._uploads.finish()
        for index, found in self.found.items():
            if digest_hashes(written.existing_keys.get(index, ())) != found.answered:
                from connector.session.replaced_rows import leave_out_unstored  # nearly all loaded keys are stored

                located, replaced = leave_out_unstored(
                    self._layouts.make(index), found.located, written, self._new_located_location
                )
                self.found[index] = replace(found, located=located, answered=replaced)

    def close(self) -> None:
        """Remove the row ids of loaded keys and, as far as possible, the directory. All rows are written."""
        for index, found in self.found.items():
            if found.row_ids:
                with warn_if_left(ROW_IDS, self._tables[index].binding.table):
                    found.row_ids.remove(self._layouts.make(index).io, ROW_IDS)
        shutil.rmtree(self._directory, ignore_errors=True)

    def discard(self) -> None:
        """Delete all objects in the store, as far as possible, and the directory. Nothing may refer to them."""
        with self._uploads:
            pass  # one that ends later would bring its object back
        delete_unstaged(self._layouts, {**self._objects})
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def row_ids(self) -> dict[int, TemporaryFile]:
        """Where the row ids of loaded keys are, by binding. Bindings whose rows have no ids are left out."""
        return {index: found.row_ids for index, found in self.found.items() if found.row_ids}

    def _find_binding(self, index: int, line: int) -> Binding:
        bindings = self._layouts.bindings
        if not 0 <= index < bindings:
            raise ProtocolError(f"line {line}: load names binding {index}, but the session has only {bindings}")
        if index not in self._tables:
            raise ProtocolError(
                f"line {line}: the runtime must not send load for binding {index}, which has delta updates"
            )
        return self._tables[index].binding

    def _count_keys(self, index: int) -> int:
        return self._keys[index].count

    def _answer(self, indexes: Sequence[int]) -> Iterator[bytes]:
        gathered = {index: self._keys.pop(index) for index in indexes}
        prepared = map_in_threads(self._prepare, gathered.items(), "loads")
        results = [result for result in self._search(prepared) if any(map(len, result.newest))]
        for result in results:
            for group, newest_mask in zip(result.search.groups, result.newest, strict=True):
                yield from _read_answers(group.documents, newest_mask, self._layouts.make(result.search.index).io)
        located = map_in_threads(self._locate, results, "loads")
        self.found.update(zip((result.search.index for result in results), located, strict=True))
        for index, keys in gathered.items():
            answered = self.found[index].answered.count
            facts.report(AnsweredLoads(self._tables[index].binding.table, keys.count, answered))

    def _prepare(self, gathered: tuple[int, GatheredKeys]) -> TableSearch:
        """Write the keys for the tasks, and find the files that may have some of them."""
        index, keys = gathered
        table = self._tables[index]
        layout = self._layouts.make(index)
        keys_file = self._new_file(layout, ".arrow")
        stored = keys.store(keys_file, layout)
        view = table.find_view(stored)
        self.found[index] = LoadedRows(LocatedRowsFile(None, 0, view.snapshot_id), KeyDigest())
        groups = tuple(
            SearchGroup(
                table.binding, keys_file, files, self._new_file(layout, ".loaded"), self._new_file(layout, ".rows")
            )
            for files in divide_files(view.files)
        )
        return TableSearch(table, view, stored, keys_file, groups)

    def _search(self, searches: Sequence[TableSearch]) -> Iterator[FoundInTable]:
        """Search the tables by one Spark job, or by several if they are large."""
        groups = [group for search in searches for group in search.groups]
        try:
            found = iter(search_in_jobs(self._spark, groups, lambda index: self._layouts.make(index).access.value))
        finally:
            for search in searches:
                with warn_if_left(RESULTS, search.table.binding.table):
                    search.keys_file.remove(self._layouts.make(search.index).io, RESULTS)
        for search in (each for each in searches if each.groups):
            io = self._layouts.make(search.index).io
            rows = [fetch_rows(returned, io) for returned in islice(found, len(search.groups))]
            newest = choose_newest(rows, len(search.keys), partial(find_last_changes, io, search.view.files))
            yield FoundInTable(search, rows, newest)

    def _locate(self, found: FoundInTable) -> LoadedRows:
        """Begin to stage all found rows, and describe the newest ones of the keys, which the runtime has got."""
        layout, keys = self._layouts.make(found.search.index), found.search.keys
        updates = layout.binding.updates
        assert updates, "only bindings that update rows are searched"
        location = self._new_located_location(layout)
        described = describe_rows([file.path for file in found.search.view.files], keys, found.rows)
        write_located(layout.io, location, described, updates, partial(write_later, self._uploads))
        chosen = [rows.take(newest_mask) for rows, newest_mask in zip(found.rows, found.newest, strict=True)]
        columns = keys.drop_columns([KEY])
        digests = [digest_keys_table(take_keys(columns, part.keys)) for rows in chosen for part in rows.slices()]
        located = LocatedRowsFile(location, sum(map(len, found.rows)), found.search.view.snapshot_id)
        return LoadedRows(located, sum_digests(digests), self._store_row_ids(layout, keys, chosen))

    def _store_row_ids(self, layout: TableLayout, keys: pa.Table, newest: Sequence[RowsOfKeys]) -> TemporaryFile | None:
        """Write the ids of the newest row of each key for the tasks that will write the next versions of these rows."""
        if all(rows.row_ids is None or (rows.row_ids == NO_ROW_ID).all() for rows in newest):
            return None
        file = self._new_file(layout, ".arrow")
        parts = (
            take_keys(keys, part.keys).append_column(ROW_ID_FIELD, pa.array(part.row_ids, pa.int64()))
            for rows in newest
            for part in rows.slices()
        )
        store_keys(file, keys.schema.append(ROW_ID_FIELD), parts, layout)
        return file

    def _new_file(self, layout: TableLayout, suffix: str) -> TemporaryFile:
        """Return a new file that the driver and all tasks reach."""
        if self._spark.is_local:
            return LocalFile(self._directory / f"{uuid.uuid4()}{suffix}")
        file = StoredObject(layout.new_block_location())
        self._objects[layout.binding.index].append(file.location)
        return file

    def _new_located_location(self, layout: TableLayout) -> str:
        location = layout.new_located_location()
        self._objects[layout.binding.index].append(location)
        return location


def _read_answers(documents: TemporaryFile, newest_mask: Mask, io: FileIO) -> Iterator[bytes]:
    if newest_mask.all():
        yield from read_documents(documents, io) if len(newest_mask) else ()
    else:
        lines = read_lines(documents, io)
        yield from (line for line, is_newest in zip(lines, newest_mask, strict=True) if is_newest)
