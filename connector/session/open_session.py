"""Opens a session once Open was answered: imports and starts what writes and searches the opened tables."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from connector.iceberg.catalogs.opening import load_opened_table
from connector.session.commit_facts import report_opened
from connector.session.committer import run_retries
from connector.session.open_tables import OpenedTables
from connector.session.progress import log_opened
from connector.session.transaction_jobs import TransactionJobs
from connector.session.transactions import Session
from connector.spark.jobs.write_job import open_claim_server
from connector.storage.file_access import keep_access_fresh

if TYPE_CHECKING:
    from connector.iceberg.session_views import SessionViews
    from connector.session.session_threads import SessionThreads


@contextmanager
def open_session(opened: OpenedTables, interrupt: Callable[[Exception], None]) -> Iterator[Session]:
    """Open the session of these tables, and retry pending commits until it ends: see `run_retries`.

    Raises UserError if Spark's tasks cannot reach this process.
    """
    config, catalog, session_spark, tables = opened.config, opened.catalog, opened.session_spark, opened.tables
    socket = session_spark.directories.sockets / "claims"
    with closing(open_claim_server(config.advanced.spark, socket)) as claims:
        threads = opened.start_threads()
        for table in tables:
            threads.committer.fences.note_opened(table.table_id, table.properties, table.writer)
        open_views = cache(partial(_open_views, opened, threads))
        access = [
            keep_access_fresh(path, table.access, partial(load_opened_table, catalog, config, path))
            for table in tables
            for path in [table.binding.path]
        ]
        jobs = TransactionJobs(session_spark, claims, tables, access, open_views)
        report_opened((table.binding.table for table in tables), config.advanced)
        log_opened(
            [table.binding.table for table in tables],
            [table.binding.table for table in tables if table.awaits_backfill],
        )
        if opened.staged:
            threads.committer.log_running()
        session = Session(tables, opened.recovered.commits, threads.committer, jobs)
        threads.continue_earlier_work(tables, opened.staged)
        with run_retries(threads.committer, interrupt):
            yield session


def _open_views(opened: OpenedTables, threads: "SessionThreads") -> "SessionViews":
    from connector.iceberg.session_views import SessionViews  # only for standard updates
    from connector.iceberg.table_view import ViewFactory

    return SessionViews(
        opened.catalog,
        ViewFactory(threads.manifests),
        threads.committer.find_pending,
        threads.committer.fences,
        {table.table_id: table.generations for table in opened.tables},
    )
