"""Starts the Spark jobs that write the data files of a session's transactions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.model.properties import Properties
from connector.spark.claims import ClaimServer
from connector.spark.engine import Engine
from connector.spark.spool import Spool
from connector.spark.table_files import Layout, TableLayout
from connector.spark.write_job import WriteJob, choose_transfer


class WriteJobs:
    """Knows the tables of a session and their storage, and starts one job for each transaction.

    `tables` has the bindings' tables first, then the tables of rejected rows. `bindings` is the number of the former.
    `access` has the storage settings of each table, with credentials that are refreshed.
    """

    def __init__(
        self,
        engine: Engine,
        claims: ClaimServer,
        tables: Sequence[BoundTable],
        access: Sequence[Refreshed[Properties]],
        bindings: int,
    ) -> None:
        self._engine = engine
        self._claims = claims
        self._tables = tables
        self._access = access
        self._bindings = bindings
        self._numbers = count(1)  # of the spools

    def start(self, file_prefixes: Sequence[str]) -> WriteJob:
        """Start the job of one transaction. `file_prefixes` has the prefix of each table's data files."""
        layouts = self._make_layouts(file_prefixes)
        bound, rejected = layouts[: self._bindings], layouts[self._bindings :]
        directory = self._engine.directories.files / f"spool-{next(self._numbers)}"
        spool = Spool(directory, limit=self._engine.spool_limit)
        spark = self._engine.spark
        return WriteJob(spark.run, self._claims, spool, choose_transfer(spark, bound), bound, rejected)

    def _make_layouts(self, file_prefixes: Sequence[str]) -> list[Layout]:
        """Return the layout of each table. The layout of a binding includes the layout of its rejected rows."""
        tables = zip(self._tables, file_prefixes, self._access, strict=True)
        layouts: list[Layout] = [partial(_make_layout, *table) for table in tables]
        return [
            partial(_add_rejected, layout, layouts[table.quarantine.table]) if table.quarantine else layout
            for table, layout in zip(self._tables, layouts, strict=True)
        ]


def _make_layout(table: BoundTable, file_prefix: str, access: Refreshed[Properties]) -> TableLayout:
    return TableLayout(table.binding, table.location, table.properties, file_prefix, access.current())


def _add_rejected(layout: Layout, rejected: Layout) -> TableLayout:
    return replace(layout(), rejected=rejected())
