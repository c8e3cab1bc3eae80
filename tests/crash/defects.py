"""What could be wrong with the connector, one mistake each, planted from outside: the scenarios must catch them."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from connector.config.endpoint_config import EndpointConfig
from connector.iceberg.catalogs import opening
from connector.iceberg.commits import commit, snapshot
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import DataFile, StagedCommit, StagedTransaction, WriterId
from connector.session import open_tables, recovery, transactions
from connector.session.backlog import Backlog
from connector.session.committer import Committer
from connector.session.loads import LoadedRows
from connector.storage.file_io import files_of
from crash import (
    backfill_defects,
    compaction_defects,
    notification_defects,
    task_defects,
    update_defects,
    writing_defects,
)
from crash.faults import DEFECT, swap
from protocol import request
from support import private_connector


def plant() -> None:
    """The defect that the environment names, if it is one of the driver's."""
    name = os.environ.get(DEFECT)
    if name and name not in task_defects.DEFECTS:
        DEFECTS[name]()


def advances_without_files() -> None:
    def advance(
        pending: private_connector.PendingCommits, loaded: private_connector.LoadedTable, staged: Sequence[StagedCommit]
    ) -> TableMetadata:
        kept = pending.snapshots.keep_files(loaded.table, staged[0].writer, {})
        properties = fence.advance(loaded.table.properties, staged[-1])
        return commit.commit_snapshot(pending.catalog, loaded.table, kept, properties)

    swap(*private_connector.COMMIT_TO_TABLE, advance)


def acknowledges_early() -> None:
    """A commit is sent when its table is looked at the next time."""
    late: dict[tuple[str, str], Callable[[], object]] = {}
    send = getattr(*private_connector.COMMIT_TO_TABLE)
    load: Callable[..., private_connector.LoadedTable] = getattr(*private_connector.LOAD_TABLE)

    def load_late(catalog: Any, chain: Sequence[StagedCommit]) -> private_connector.LoadedTable:
        late.pop(chain[0].path, lambda: None)()
        return load(catalog, chain)

    def send_later(
        pending: Any, loaded: private_connector.LoadedTable, staged: Sequence[StagedCommit]
    ) -> TableMetadata:
        late[staged[0].path] = lambda: send(pending, loaded, staged)
        return loaded.table.metadata

    swap(*private_connector.COMMIT_TO_TABLE, send_later)
    swap(*private_connector.LOAD_TABLE, load_late)


def shows_while_storing() -> None:
    shows_at_start_commit()
    store = transactions.OpenTransaction.store

    def store_and_show(self: Any, rows: Any) -> None:
        store(self, rows)
        self._stage(self._writing.finish(), {}, request.StartCommit({}))
        self._writing = self._jobs.start_writing(self._file_prefixes, {})

    swap(transactions.OpenTransaction, "store", store_and_show)


def shows_at_start_commit() -> None:
    stage: Callable[..., StagedTransaction] = getattr(*private_connector.STAGE_TRANSACTION)

    def stage_and_show(self: Any, *arguments: Any) -> StagedTransaction:
        staged = stage(self, *arguments)
        self._committer.commit(staged.commits)
        return staged

    swap(*private_connector.STAGE_TRANSACTION, stage_and_show)


def forgets_recovery() -> None:
    swap(open_tables, "select_overlapping_commits", lambda *_: [])


def finishes_one_table_of_a_binding() -> None:
    staged_for = recovery.select_overlapping_commits

    def one_each(*about: Any) -> list[StagedCommit]:
        return list({commit.writer: commit for commit in staged_for(*about)}.values())

    swap(open_tables, "select_overlapping_commits", one_each)


def ignores_the_fence() -> None:
    swap(fence, "remaining_commits", lambda chain, *_, **__: chain)


def cleans_up_when_in_doubt() -> None:
    send: Callable[..., TableMetadata] = getattr(*private_connector.COMMIT_TO_TABLE)

    def send_or_clean_up(
        pending: Any, loaded: private_connector.LoadedTable, staged: Sequence[StagedCommit]
    ) -> TableMetadata:
        io = loaded.table.io
        try:
            return send(pending, loaded, staged)
        except Exception:
            for file in (file for entry in staged for file in files_of(io, entry.files)):
                io.delete(file.path)
            raise

    swap(*private_connector.COMMIT_TO_TABLE, send_or_clean_up)


def reads_the_fence_late() -> None:
    stage_table: Callable[..., StagedCommit] = getattr(*private_connector.STAGE_TABLE)

    def stage_on_the_present_value(self: Any, index: int, *rest: Any) -> StagedCommit:
        [catalog], bound = self._committer._attempt.args, self._tables[index]
        properties = catalog.load_table(bound.binding.path).properties
        self._fences[index] = WriterFence.begin(properties, bound.writer, [])
        return stage_table(self, index, *rest)

    swap(*private_connector.STAGE_TABLE, stage_on_the_present_value)


def derives_the_fence_from_the_checkpoint() -> None:
    stage_table: Callable[..., StagedCommit] = getattr(*private_connector.STAGE_TABLE)

    def stage_predictably(
        self: Any, index: int, files: tuple[DataFile, ...], found: LoadedRows | None, checkpoint: str, *rest: Any
    ) -> StagedCommit:
        staged = stage_table(self, index, files, found, checkpoint, *rest)
        predictable = replace(staged, next=hashlib.sha256(checkpoint.encode()).hexdigest()[:32])
        self._fences[index] = self._fences[index].after(predictable)
        return predictable

    swap(*private_connector.STAGE_TABLE, stage_predictably)


def keeps_the_fence_in_the_newest_summary() -> None:
    _look_for_the_fence_in(lambda table: [newest] if (newest := table.current_snapshot()) else [])


def keeps_the_fence_in_summaries() -> None:
    _look_for_the_fence_in(lambda table: table.snapshots())


def _look_for_the_fence_in(snapshots: Callable[[Table], Sequence[Snapshot]]) -> None:
    open_catalog = opening.open_catalog

    def open_forgetful(config: EndpointConfig) -> Catalog:
        catalog = open_catalog(config)
        load = catalog.load_table

        def load_table(identifier: Any) -> Table:
            table = load(identifier)
            others = {name: value for name, value in table.properties.items() if not name.startswith(fence.PREFIX)}
            properties = others | dict(map(_fence_of, filter(_has_fence, snapshots(table))))
            table.metadata = table.metadata.model_copy(update={"properties": properties})
            return table

        swap(catalog, "load_table", load_table)
        return catalog

    swap(open_tables, "open_catalog", open_forgetful)


def _has_fence(of: Snapshot) -> bool:
    return of.summary is not None and "flow.fence" in of.summary


def _fence_of(of: Snapshot) -> tuple[str, str]:
    assert of.summary is not None
    names = ("flow.materialization", "flow.state-key", "flow.key-range", "flow.fence")
    materialization, state_key, key_range, value = (str(of.summary[name]) for name in names)
    return fence.property_name(WriterId(materialization, state_key, key_range)), value


def drops_what_others_appended() -> None:
    ours = update_defects.note_own_snapshots()
    swap(
        snapshot, "manifests_of", lambda *about: [own for own in manifests_of(*about) if own.added_snapshot_id in ours]
    )


def checks_no_uuid() -> None:
    def load(catalog: Any, chain: Sequence[StagedCommit]) -> private_connector.LoadedTable:
        table = catalog.load_table(chain[0].path)
        return private_connector.LoadedTable(table, find_generation(table, chain[0].writer.materialization))

    swap(*private_connector.LOAD_TABLE, load)


def commits_without_looking() -> None:
    swap(commit, "check_staged_files", lambda *_: None)


def looks_at_its_own_range_only() -> None:
    def overlapping(properties: Mapping[str, str], writer: WriterId) -> dict[str, str]:
        return {name: value for name, value in properties.items() if name == fence.property_name(writer)}

    swap(fence, "find_overlapping_fences", overlapping)


def finishes_its_own_range_only() -> None:
    swap(WriterId, "overlaps", lambda self, key_range: self.key_range == key_range)


def finishes_the_first_child_only() -> None:
    swap(WriterId, "overlaps", lambda self, key_range: self.key_range.split("-")[0] == key_range.split("-")[0])


def forgets_what_waits() -> None:
    commit_what_is_taken = Committer.commit
    swap(Backlog, "record_failure", lambda backlog, chain, *_: backlog.record_commit(chain))

    def commit_and_forget(self: Committer, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        commit_what_is_taken(self, staged)
        return list(staged)

    swap(Committer, "commit", commit_and_forget)


def retries_only_with_a_transaction() -> None:
    swap(Committer, "wait_for_retry", lambda _: False)


def forgets_the_version() -> None:
    from pyiceberg.catalog.glue import GlueCatalog  # in one of three catalogs only, and slow to import

    def update(self: GlueCatalog, database_name: str, _: str, table_input: Any, __: str) -> None:
        self.glue.update_table(DatabaseName=database_name, TableInput=table_input, SkipArchive=True)

    swap(GlueCatalog, "_update_glue_table", update)


DEFECTS: Final[dict[str, Callable[[], None]]] = (
    {
        defect.__name__: defect
        for defect in (
            advances_without_files,
            acknowledges_early,
            shows_while_storing,
            shows_at_start_commit,
            forgets_recovery,
            finishes_one_table_of_a_binding,
            ignores_the_fence,
            cleans_up_when_in_doubt,
            reads_the_fence_late,
            derives_the_fence_from_the_checkpoint,
            keeps_the_fence_in_the_newest_summary,
            keeps_the_fence_in_summaries,
            drops_what_others_appended,
            checks_no_uuid,
            commits_without_looking,
            looks_at_its_own_range_only,
            finishes_its_own_range_only,
            finishes_the_first_child_only,
            forgets_what_waits,
            retries_only_with_a_transaction,
            writing_defects.swallows_a_full_disk,
            writing_defects.dates_by_its_own_clock,
            writing_defects.reuses_manifests,
            forgets_the_version,
            writing_defects.waits_as_long_as_the_library,
        )
    }
    | update_defects.DEFECTS
    | compaction_defects.DEFECTS
    | backfill_defects.DEFECTS
    | notification_defects.DEFECTS
)
