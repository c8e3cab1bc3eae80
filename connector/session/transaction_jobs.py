"""The Spark jobs of a session's transactions.

A job writes the rows of a transaction. With standard updates, an earlier one searches for the keys of its Loads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from connector.encoding.parquet.file_options import Destination
from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.model.properties import Properties
from connector.model.state import measure_share
from connector.spark.blocks.claims import ClaimServer
from connector.spark.blocks.spool import Spool
from connector.spark.blocks.transaction_files import NewLayout, TableLayout, TemporaryFile
from connector.spark.engine import Engine
from connector.spark.jobs.write_job import JobTables, WriteJob, choose_transfer

if TYPE_CHECKING:
    from connector.iceberg.table_view import SessionViews
    from connector.session.loads import TransactionLoads


class TransactionJobs:
    """Knows the tables of a session and their storage, and starts the search and the write job of each transaction.

    `tables` has the bindings' tables first, then the tables of rejected rows. `bindings` is the number of the former.
    `access` has the storage settings of each table, with credentials that are refreshed. `open_views` returns the views
    that Loads search, the same ones each time.
    """

    def __init__(
        self,
        engine: Engine,
        claims: ClaimServer,
        tables: Sequence[BoundTable],
        access: Sequence[Refreshed[Properties]],
        bindings: int,
        open_views: "Callable[[], SessionViews]",
    ) -> None:
        self._engine = engine
        are_plain = all(table.arrangement.is_plain for table in tables)
        self._spool_limit = engine.spool_limit if are_plain else engine.disk_limit // 2
        self._claims = claims
        self._tables = tables
        self._share = measure_share(tables[0].writer.key_range) if tables else 1.0
        self._access = access
        self._bindings = bindings
        self._open_views = open_views
        self._numbers = count(1)  # of the directories

    def start_loading(self, file_prefixes: Sequence[str]) -> "TransactionLoads":
        """Begin to gather the Loads of one transaction. `file_prefixes` has the prefix of each table's files."""
        from connector.session.loads import SearchedTable, TransactionLoads  # only for standard updates

        new_layouts, views = self._list_new_layouts(file_prefixes, {}), self._open_views()
        searched = {
            index: SearchedTable(
                table.binding,
                new_layouts[index],
                partial(views.find, table.table_id, table.writer, table.binding.keys),
            )
            for index, table in enumerate(self._tables)
            if table.binding.updates
        }
        directory = self._engine.directories.files / f"loads-{next(self._numbers)}"
        return TransactionLoads(self._engine.spark, directory, searched, self._bindings)

    def start_writing(self, file_prefixes: Sequence[str], row_ids: Mapping[int, TemporaryFile]) -> WriteJob:
        """Start the job of one transaction. `file_prefixes` has the prefix of each table's data files, `row_ids` say by
        binding where the ids of loaded keys are."""
        new_layouts = self._list_new_layouts(file_prefixes, row_ids)
        bound, rejected = new_layouts[: self._bindings], new_layouts[self._bindings :]
        directory = self._engine.directories.files / f"spool-{next(self._numbers)}"
        spool = Spool(directory, limit=self._spool_limit)
        spark = self._engine.spark
        tables = JobTables(bound, rejected, self._share)
        return WriteJob(spark, self._claims, spool, choose_transfer(spark, bound), tables)

    def _list_new_layouts(
        self, file_prefixes: Sequence[str], row_ids: Mapping[int, TemporaryFile]
    ) -> Sequence[NewLayout]:
        return [partial(self._make_layout, file_prefixes, row_ids, index) for index in range(len(self._tables))]

    def _make_layout(self, prefixes: Sequence[str], row_ids: Mapping[int, TemporaryFile], index: int) -> TableLayout:
        """Return the layout of a table, with credentials that are valid now. That of a binding includes the layout of
        its rejected rows."""
        table = self._tables[index]
        layout = TableLayout(
            table.binding,
            Destination(table.location, table.properties, prefixes[index]),
            self._access[index].current(),
            table.arrangement,
            rejected=self._make_layout(prefixes, row_ids, table.quarantine.table_index) if table.quarantine else None,
            row_ids=row_ids.get(index),
        )
        if layout.arrangement.is_plain:
            return layout
        # All tasks may have as many bytes of sorted runs on the disk as the spool.
        return replace(layout, run_limit=self._spool_limit // self._engine.spark.cores)
