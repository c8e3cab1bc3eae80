"""Defects that the simulation has to find, each planted in the shipped code from outside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from pyiceberg.io import InputFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate, update_table_metadata

from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits.commit_outcomes import Outcome
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.fences import fence, passed_values
from connector.iceberg.maintenance import remove_task_orphans
from connector.iceberg.metadata import snapshot_files
from connector.iceberg.metadata.manifest_merging import ManifestMerger
from connector.iceberg.metadata.snapshot_manifests import ManifestFactory, RememberingFileIO
from connector.model.invalid_values import REJECTED_SUFFIX
from connector.model.state import ReportedCommits, StagedCommit, StagedTransaction, WriterId
from connector.rpc import apply
from connector.session import recovery
from connector.session.backlog import Backlog
from connector.session.committer import Committer
from simulation.actors import Actor
from simulation.catalog import SimulatedCatalog
from support import private_connector

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]

commit_table = SimulatedCatalog.commit_table


def nobody_is_replaced_but_by_its_own_range(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(*private_connector.CHECK_KNOWN_FENCES, lambda _chain, _properties: None)


def an_old_state_key_is_a_stranger(patch: pytest.MonkeyPatch) -> None:
    overlapping = fence.find_overlapping_fences

    def of_one_key(properties: Mapping[str, str], writer: WriterId) -> dict[str, str]:
        prefix = fence.PREFIX + fence.writer_hash(writer)
        return {name: value for name, value in overlapping(properties, writer).items() if name.startswith(prefix)}

    patch.setattr(fence, "find_overlapping_fences", of_one_key)


def a_session_does_not_wait_for_what_was_staged_before(patch: pytest.MonkeyPatch) -> None:
    def attempt_table(
        catalog: Any,
        staged: Sequence[StagedCommit],
        without_retry: Any,
        writers: SnapshotWriters,
        retry_until: float,
    ) -> list[Outcome]:
        return [
            private_connector.PendingCommits(
                catalog, chain, writers.new(), chain[0].chain_id in without_retry, retry_until
            ).try_to_commit()
            for chain in fence.group_by_writer(staged)
        ]

    patch.setattr(*private_connector.TRY_TABLE, attempt_table)


def what_waits_must_not_land_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "find_pending", lambda *_: [])


def nothing_is_recovered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "select_overlapping_commits", lambda _staged, _key_range: [])


def fences_are_read_before_recovery(patch: pytest.MonkeyPatch) -> None:
    recover = recovery.recover

    def too_early(staged: Any, committer: Committer, bind: Any) -> Any:
        tables = bind()
        return recover(staged, committer, lambda: tables)

    patch.setattr(recovery, "recover", too_early)


def prev_is_whatever_the_table_says_at_the_commit(patch: pytest.MonkeyPatch) -> None:
    unlanded = fence.remaining_commits

    def adopting(chain: Sequence[StagedCommit], properties: Mapping[str, str]) -> Sequence[StagedCommit]:
        value = fence.read_value(properties, chain[0].writer)
        is_known = any(value in (it.prev, it.next) for it in chain)
        first = chain[0] if is_known else replace(chain[0], prev=value)
        return unlanded([first, *chain[1:]], properties)

    patch.setattr(fence, "remaining_commits", adopting)


def entries_are_not_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReportedCommits, "patch", None)


def entries_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedTransaction, "patch", None)


def entries_are_removed_although_they_wait(patch: pytest.MonkeyPatch) -> None:
    commit_them = Committer.commit
    patch.setattr(Committer, "commit", lambda it, staged: list({*commit_them(it, staged), *staged}))


def the_backlog_forgets_what_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "record_failure", lambda backlog, chain, *_: backlog.record_commit(chain))


def _without_requirement(patch: pytest.MonkeyPatch, kind: type) -> None:
    def lenient(catalog: SimulatedCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        return commit_table(catalog, table, tuple(it for it in requirements if not isinstance(it, kind)), updates)

    patch.setattr(SimulatedCatalog, "commit_table", lenient)


def main_is_not_asserted(patch: pytest.MonkeyPatch) -> None:
    _without_requirement(patch, AssertRefSnapshotId)


def the_uuid_is_not_asserted(patch: pytest.MonkeyPatch) -> None:
    _without_requirement(patch, AssertTableUUID)


def the_fence_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    unlanded = fence.remaining_commits
    known: dict[tuple[Actor | None, str], Sequence[StagedCommit]] = {}

    def first(chain: Sequence[StagedCommit], properties: Mapping[str, str]) -> Sequence[StagedCommit]:
        key = Actor.present, chain[-1].next
        if key not in known:
            known[key] = unlanded(chain, properties)
        return known[key]

    patch.setattr(fence, "remaining_commits", first)


def the_fence_is_read_when_rows_are_staged(patch: pytest.MonkeyPatch) -> None:
    stage_table: Callable[..., StagedCommit] = getattr(*private_connector.STAGE_TABLE)

    def on_the_present_value(session: Any, index: int, *rest: Any) -> StagedCommit:
        assert Actor.present
        table = session._tables[index]
        properties = Actor.present.catalog.load_table(table.binding.path).properties
        waiting = session._committer.find_pending(table.table_id, table.writer.key_range)
        session._fences[index] = fence.WriterFence.begin(properties, table.writer, waiting)
        return stage_table(session, index, *rest)

    patch.setattr(*private_connector.STAGE_TABLE, on_the_present_value)


def an_unknown_outcome_counts_as_landed(patch: pytest.MonkeyPatch) -> None:
    def trusting(catalog: SimulatedCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        try:
            return commit_table(catalog, table, requirements, updates)
        except TimeoutError:
            metadata = update_table_metadata(table.metadata, updates)
            return CommitTableResponse.model_construct(metadata=metadata, metadata_location=table.metadata_location)

    patch.setattr(SimulatedCatalog, "commit_table", trusting)


def the_fence_moves_in_a_commit_of_its_own(patch: pytest.MonkeyPatch) -> None:
    def in_two(catalog: SimulatedCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        properties = tuple(update for update in updates if isinstance(update, SetPropertiesUpdate))
        commit_table(catalog, table, requirements, tuple(update for update in updates if update not in properties))
        return commit_table(catalog, table, (), properties)

    patch.setattr(SimulatedCatalog, "commit_table", in_two)


def what_was_folded_is_used_for_whatever_a_later_attempt_finds(patch: pytest.MonkeyPatch) -> None:
    write = getattr(*private_connector.WRITE_MERGED_MANIFEST)
    written: dict[tuple[ManifestMerger, str], list[ManifestFile]] = {}

    def once(folder: ManifestMerger, factory: ManifestFactory, chosen: Any) -> list[ManifestFile]:
        if (folder, factory.prefix) not in written:
            written[folder, factory.prefix] = write(folder, factory, chosen)
        return written[folder, factory.prefix]

    patch.setattr(*private_connector.WRITE_MERGED_MANIFEST, once)


def the_own_manifest_list_is_taken_for_the_table_s(patch: pytest.MonkeyPatch) -> None:
    _read_own_files(patch, "snap-")


def the_own_manifests_are_taken_for_those_of_others(patch: pytest.MonkeyPatch) -> None:
    _read_own_files(patch, "-m0.")


def _read_own_files(patch: pytest.MonkeyPatch, kind: str) -> None:
    read = RememberingFileIO.new_input

    def read_own(io: RememberingFileIO, location: str) -> InputFile:
        own = [each for each in io._files if kind in each and kind in location]
        return read(io, own[-1] if own else location)

    patch.setattr(RememberingFileIO, "new_input", read_own)


def files_of_the_present_value_are_orphans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passed_values, "is_passed", lambda *_: True)


def referenced_files_are_orphans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remove_task_orphans, "find_unreferenced", lambda _table, locations, *_: set(locations))


def expired_snapshots_have_files_of_their_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot_files, "find_unreferenced", lambda _table, names, *_, **__: set(names))


def files_that_wait_are_orphans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "read_ordinal", lambda _value: 0)


def apply_does_not_finish_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply, "commit_all_or_raise", lambda *_: [])


def _is_rejected(staged: StagedCommit) -> bool:
    return staged.path[1].endswith(REJECTED_SUFFIX)


def rejected_rows_are_not_recovered(patch: pytest.MonkeyPatch) -> None:
    overlapping = recovery.select_overlapping_commits

    def of_bindings(staged: Sequence[StagedCommit], key_range: str) -> list[StagedCommit]:
        return [commit for commit in overlapping(staged, key_range) if not _is_rejected(commit)]

    patch.setattr(recovery, "select_overlapping_commits", of_bindings)


def rejected_rows_land_with_whatever_else_their_writer_lands(patch: pytest.MonkeyPatch) -> None:
    commit_them = Committer.commit

    def by_writer(committer: Committer, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        landed = commit_them(committer, staged)
        writers = {commit.writer for commit in landed}
        return list({*landed, *(it for it in staged if _is_rejected(it) and it.writer in writers)})

    patch.setattr(Committer, "commit", by_writer)


def rejected_rows_are_staged_on_what_their_binding_s_table_says(patch: pytest.MonkeyPatch) -> None:
    stage_table: Callable[..., StagedCommit] = getattr(*private_connector.STAGE_TABLE)

    def on_the_binding_s(session: Any, index: int, *files_and_checkpoint: Any) -> StagedCommit:
        binding = next((number for number, it in enumerate(session._tables) if _quarantine(it) == index), index)
        session._fences[index] = session._fences[binding]
        return stage_table(session, index, *files_and_checkpoint)

    patch.setattr(*private_connector.STAGE_TABLE, on_the_binding_s)


def _quarantine(table: BoundTable) -> int | None:
    return table.quarantine.table_index if table.quarantine else None


DEFECTS: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        nobody_is_replaced_but_by_its_own_range,
        an_old_state_key_is_a_stranger,
        a_session_does_not_wait_for_what_was_staged_before,
        what_waits_must_not_land_late,
        nothing_is_recovered,
        fences_are_read_before_recovery,
        prev_is_whatever_the_table_says_at_the_commit,
        entries_are_not_removed,
        entries_are_not_recorded,
        entries_are_removed_although_they_wait,
        the_backlog_forgets_what_failed,
        main_is_not_asserted,
        the_uuid_is_not_asserted,
        the_fence_is_not_read_again,
        the_fence_is_read_when_rows_are_staged,
        an_unknown_outcome_counts_as_landed,
        the_fence_moves_in_a_commit_of_its_own,
        what_was_folded_is_used_for_whatever_a_later_attempt_finds,
        the_own_manifest_list_is_taken_for_the_table_s,
        the_own_manifests_are_taken_for_those_of_others,
        files_of_the_present_value_are_orphans,
        referenced_files_are_orphans,
        expired_snapshots_have_files_of_their_own,
        files_that_wait_are_orphans,
        apply_does_not_finish_what_is_staged,
        rejected_rows_are_not_recovered,
        rejected_rows_land_with_whatever_else_their_writer_lands,
        rejected_rows_are_staged_on_what_their_binding_s_table_says,
    )
}
