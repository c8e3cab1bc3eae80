"""The Spark jobs of a session's transactions.

A job writes the rows of a transaction. With standard updates, an earlier one searches for the keys of its Loads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING

from connector.encoding.parquet.file_options import Destination
from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.model.properties import Properties
from connector.model.state import measure_share
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.spool import Spool
from connector.spark.blocks.transaction_files import TableLayout, TemporaryFile
from connector.spark.jobs.write_job import WriteJob, choose_transfer
from connector.spark.jvm.spark_session import Spark
from connector.spark.jvm.start_spark import SessionSpark

if TYPE_CHECKING:
    from connector.iceberg.session_views import SessionViews
    from connector.session.loads import TransactionLoads


@dataclass(frozen=True)
class TransactionLayouts:
    """Makes the layouts of the tables of one transaction: the bindings' tables first, then those of rejected rows."""

    tables: Sequence[BoundTable]
    access: Sequence[Refreshed[Properties]]  # storage settings of each table, with credentials that are refreshed
    spark: Spark
    spool_limit: int  # bytes
    file_prefixes: Sequence[str]  # of each table's data files
    row_ids: Mapping[int, TemporaryFile]  # of loaded keys, by binding

    @cached_property
    def bindings(self) -> int:
        """How many of the tables are those of bindings. Each of the others has the rejected rows of one of them."""
        return len(self.tables) - sum(table.quarantine is not None for table in self.tables)

    def make(self, table_index: int) -> TableLayout:
        """Return the layout of a table, with credentials that are valid now. That of a binding includes the layout of
        its rejected rows."""
        bound = self.tables[table_index]
        layout = TableLayout(
            bound.binding,
            Destination(bound.location, bound.properties, self.file_prefixes[table_index]),
            self.access[table_index].current(),
            bound.arrangement,
            rejected=self.make(bound.quarantine.table_index) if bound.quarantine else None,
            row_ids=self.row_ids.get(table_index),
        )
        if layout.arrangement.is_plain:
            return layout
        # All tasks may have as many bytes of sorted runs on the disk as the spool.
        return replace(layout, run_limit=self.spool_limit // self.spark.cores)


class TransactionJobs:
    """Knows the tables of a session and their storage, and starts the search and the write job of each transaction.

    `tables` has the bindings' tables first, then the tables of rejected rows. `access` has each table's storage
    settings, with credentials that are refreshed. `open_views` returns the views of Loads, the same ones each time.
    """

    def __init__(
        self,
        session_spark: SessionSpark,
        claims: ClaimServer,
        tables: Sequence[BoundTable],
        access: Sequence[Refreshed[Properties]],
        open_views: "Callable[[], SessionViews]",
    ) -> None:
        self._spark, self._directory = session_spark.spark, session_spark.directories.files
        are_plain = all(table.arrangement.is_plain for table in tables)
        spool_limit = session_spark.limits.spool if are_plain else session_spark.limits.disk // 2
        self._make_layouts = partial(TransactionLayouts, tables, access, self._spark, spool_limit)
        self._claims = claims
        self._share = measure_share(tables[0].writer.key_range) if tables else 1.0
        self._open_views = open_views
        self._numbers = count(1)  # of the directories

    def start_loading(self, file_prefixes: Sequence[str]) -> "TransactionLoads":
        """Begin to gather the Loads of one transaction. `file_prefixes` has the prefix of each table's files."""
        from connector.session.loads import SearchedTable, TransactionLoads  # only for standard updates

        layouts, views = self._make_layouts(file_prefixes, {}), self._open_views()
        searched = {
            index: SearchedTable(table.binding, partial(views.find, table.table_id, table.writer, table.binding.keys))
            for index, table in enumerate(layouts.tables)
            if table.binding.updates
        }
        directory = self._directory / f"loads-{next(self._numbers)}"
        return TransactionLoads(self._spark, directory, searched, layouts)

    def start_writing(self, file_prefixes: Sequence[str], row_ids: Mapping[int, TemporaryFile]) -> WriteJob:
        """Start the job of one transaction. `file_prefixes` has the prefix of each table's data files, `row_ids` say by
        binding where the ids of loaded keys are."""
        layouts = self._make_layouts(file_prefixes, row_ids)
        spool = Spool(self._directory / f"spool-{next(self._numbers)}", limit=layouts.spool_limit)
        transfer = choose_transfer(self._spark, layouts)
        return WriteJob(self._spark, self._claims, spool, transfer, layouts, self._share)
