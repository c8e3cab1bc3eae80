"""The fenced commit: staged files become visible in one catalog commit, once.

The commit is a value that we build and send through `Catalog.commit_table`. PyIceberg's own transactions retry by
replaying property updates over another process's commit, and clean up after conflicts that did land.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPropertiesUpdate

from connector.host.errors import ConnectorError
from connector.host.logs import Event, fields
from connector.host.threads import map_in_threads
from connector.iceberg.commits import commit_errors, fence
from connector.iceberg.commits.commit_errors import BROKEN, is_hopeless, worth_another_look
from connector.iceberg.commits.late_files import LateFiles, check_columns
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.commits.staged_files import StagedFiles
from connector.iceberg.metadata.table_properties import check_properties, name_table_in_errors
from connector.iceberg.metadata.table_updates import new_snapshot, same_rows, same_schema, same_table
from connector.model.state import ChainId, StagedCommit
from connector.storage import storage_errors

log = logging.getLogger(__name__)

COMMITS_AT_ONCE: Final = 8  # tables; each waits for its catalog most of the time
RETRY_FOR: Final = 30.0  # seconds after the first attempt: an acknowledgement waits for a table that took the last one
FIRST_PAUSE: Final = 0.1  # seconds, doubled up to LONGEST_PAUSE, each drawn between half of it and all
LONGEST_PAUSE: Final = 10.0


@dataclass(frozen=True)
class Committed:
    """A commit that a table took: the table as it was loaded before, and its metadata after."""

    table: Table
    metadata: TableMetadata


@dataclass(frozen=True)
class Landed:
    """A chain of staged commits that its table holds."""

    chain: tuple[StagedCommit, ...]
    attempts: int  # 0: the table held them already
    seconds: float
    commit: Committed | None = None  # None: the table held them already


@dataclass(frozen=True)
class Failed:
    """A chain of staged commits that its table has not taken."""

    chain: tuple[StagedCommit, ...]
    error: ConnectorError


def finish(catalog: Catalog, staged: Sequence[StagedCommit]) -> list[Landed]:
    """`attempt`, but every table has to take its commits: raises the first error, after all have been tried."""
    outcomes = attempt(catalog, staged)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise outcome.error
    return [outcome for outcome in outcomes if isinstance(outcome, Landed)]


def attempt(
    catalog: Catalog,
    staged: Sequence[StagedCommit],
    once: Collection[ChainId] = (),
    new_writer: Callable[[], SnapshotWriter] = SnapshotWriter,
) -> list[Landed | Failed]:
    """Make every staged commit part of its table, whether or not it has landed before: repeating it changes nothing.
    Tables are committed concurrently, and the failure of one does not touch the others.

    The chains of `once`, which have failed before, get a single attempt, the others RETRY_FOR: long enough for a
    conflict or a catalog that is being restarted.
    """
    by_table = groupby(sorted(staged, key=lambda commit: commit.table_id), key=lambda commit: commit.table_id)
    tables = [list(commits) for _, commits in by_table]

    def attempt_table(commits: Sequence[StagedCommit]) -> list[Landed | Failed]:
        return _attempt_table(catalog, commits, once, new_writer)

    return [
        outcome for outcomes in map_in_threads(attempt_table, tables, COMMITS_AT_ONCE, "commit") for outcome in outcomes
    ]


def _attempt_table(
    catalog: Catalog,
    staged: Sequence[StagedCommit],
    once: Collection[ChainId],
    new_writer: Callable[[], SnapshotWriter],
) -> list[Landed | Failed]:
    chains = fence.chains(staged)
    # What earlier sessions have staged lands first: a session's own commit closes the values that it was staged on, and
    # what is staged on a closed value may be deleted. So a table that has not taken one chain is not asked for the
    # next.
    chains.sort(key=lambda chain: not chain[-1].is_recovered)
    outcomes: list[Landed | Failed] = []
    for chain in chains:
        match outcomes[-1:]:
            case [Failed(_, error)]:
                outcomes.append(Failed(tuple(chain), error))
            case _:
                outcomes.append(_attempt_chain(catalog, chain, chain[0].chain_id in once, new_writer()))
    return outcomes


def _attempt_chain(
    catalog: Catalog, chain: Sequence[StagedCommit], has_failed: bool, snapshots: SnapshotWriter
) -> Landed | Failed:
    try:
        return _finish_chain(catalog, chain, has_failed, snapshots)
    except ConnectorError as error:
        return Failed(tuple(chain), error)
    except BROKEN as error:  # one table's metadata must not end the session for the others, nor keep any from opening
        return Failed(tuple(chain), commit_errors.explain_broken_metadata(".".join(chain[0].path), error))


def _finish_chain(
    catalog: Catalog, chain: Sequence[StagedCommit], has_failed: bool, snapshots: SnapshotWriter
) -> Landed:
    began = time.monotonic()
    files, late = StagedFiles(), LateFiles()
    name = ".".join(chain[0].path)
    last: Exception | None = None
    for number in _attempts(0.0 if has_failed else RETRY_FOR):
        try:
            # The fence is read from the very metadata whose main the commit asserts; every fence change moves main.
            table = _load(catalog, chain)
            rest = fence.remaining_commits(chain, table.properties)
            if not rest:
                return Landed(tuple(chain), number, time.monotonic() - began)
            # Those of a transaction that was staged just now are not looked for: it would cost every commit a request.
            files.check(table, [commit for commit in rest if has_failed or commit.is_recovered])
            check_columns(table, rest)
            with name_table_in_errors(table):
                check_properties(table.properties)
            fitting = late.convert(table, rest)
            committed = _commit(catalog, table, fitting, snapshots, fence.advance(table.properties, chain[-1]))
            return Landed(tuple(chain), number + 1, time.monotonic() - began, Committed(table, committed))
        except worth_another_look() as error:
            if is_hopeless(error):
                raise commit_errors.explain_refusal(name, error) from error
            log.warning(
                "table %s: commit attempt %d: %s: %s",
                name,
                number + 1,
                type(error).__name__,
                commit_errors.quote(error),
                extra=fields(Event.RETRIED, table=name, attempt=number + 1),
            )
            last = error
    assert last is not None
    raise commit_errors.explain_last_attempt(name, last, time.monotonic() - began)


def _attempts(retry_for: float) -> Iterator[int]:
    """Count attempts, with growing pauses between them, for so many seconds after the first one. Not from its start:
    the first may take all of its client's time limit, and somebody has to look whether it landed."""
    yield 0
    deadline = time.monotonic() + retry_for
    pause, attempt = FIRST_PAUSE, 0
    while time.monotonic() + pause <= deadline:
        time.sleep(pause * random.uniform(0.5, 1))
        pause, attempt = min(2 * pause, LONGEST_PAUSE), attempt + 1
        yield attempt


def _load(catalog: Catalog, chain: Sequence[StagedCommit]) -> Table:
    try:
        table = catalog.load_table(chain[0].path)
    except NoSuchTableError:
        raise commit_errors.gone(chain) from None
    uuid = str(table.metadata.table_uuid)
    if uuid != chain[0].table_uuid:
        raise commit_errors.explain_replaced_table(chain, uuid)
    return table


def _commit(
    catalog: Catalog,
    table: Table,
    staged: Sequence[StagedCommit],
    snapshots: SnapshotWriter,
    properties: dict[str, str],
) -> TableMetadata:
    """One attempt: the files' snapshot and the fence's value, both or neither."""
    with storage_errors.translate_errors(table.location()):
        snapshot = snapshots.append(table, staged)
    return land(catalog, table, snapshot, properties)


def land(catalog: Catalog, table: Table, snapshot: Snapshot, properties: dict[str, str]) -> TableMetadata:
    """Make a snapshot the table's current one and set properties with it, if the table is still as it was loaded.

    Returns the table's new metadata.
    """
    # The schema is asserted too: files that were staged before a column was converted have to be rewritten.
    requirements = (same_table(table), same_rows(table), *same_schema(table))
    updates = (*new_snapshot(table, snapshot), SetPropertiesUpdate(updates=properties))
    return catalog.commit_table(table, requirements, updates).metadata
