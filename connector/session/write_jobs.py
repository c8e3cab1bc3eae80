"""Starts the Spark jobs that write the data files of a session's transactions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from connector.config.values import Settings
from connector.host.refresh import Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.spark.block_transfer import choose_transfer
from connector.spark.claim_server import ClaimServer
from connector.spark.engine import Engine
from connector.spark.layout import Layout, TableLayout
from connector.spark.spool import Spool
from connector.spark.write_job import WriteJob


class WriteJobs:
    """The tables of a session, and how files get into them.

    The tables of the bindings come first, then the tables of rejected rows. `access` has the storage settings of each
    table, with credentials that are refreshed.
    """

    def __init__(
        self,
        engine: Engine,
        claims: ClaimServer,
        tables: Sequence[BoundTable],
        access: Sequence[Refreshed[Settings]],
        bindings: int,
    ) -> None:
        self._engine = engine
        self._claims = claims
        self._tables = tables
        self._access = access
        self._bindings = bindings
        self._numbers = count(1)  # of the spools

    def start(self, file_prefixes: Sequence[str]) -> WriteJob:
        """Start the job of one transaction. `file_prefixes` begin the names of its data files, table by table."""
        layouts = self._layouts(file_prefixes)
        bound, rejected = layouts[: self._bindings], layouts[self._bindings :]
        directory = self._engine.directories.files / f"spool-{next(self._numbers)}"
        spool = Spool(directory, limit=self._engine.spool_limit)
        spark = self._engine.spark
        return WriteJob(spark.run, self._claims, spool, choose_transfer(spark, bound), bound, rejected)

    def _layouts(self, file_prefixes: Sequence[str]) -> list[Layout]:
        """The layout of each table. A binding's has that of its rejected rows with it."""
        tables = zip(self._tables, file_prefixes, self._access, strict=True)
        layouts: list[Layout] = [partial(_layout, *table) for table in tables]
        return [
            partial(_layout_with_rejected, layout, layouts[table.quarantine.table]) if table.quarantine else layout
            for table, layout in zip(self._tables, layouts, strict=True)
        ]


def _layout(table: BoundTable, file_prefix: str, access: Refreshed[Settings]) -> TableLayout:
    return TableLayout(table.binding, table.location, table.properties, file_prefix, access.current())


def _layout_with_rejected(layout: Layout, rejected: Layout) -> TableLayout:
    return replace(layout(), rejected=rejected())
