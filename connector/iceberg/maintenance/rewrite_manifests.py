"""Merges all small manifests of a table at once, in a commit of its own that changes no rows.

A session merges manifests only when they are many, so that an entry is written again rarely. A table whose task is
stopped keeps what the last commits have left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from connector.host.groups import divide, group_by
from connector.host.interruption import NEVER, Interruption
from connector.iceberg.commits.commit import commit_snapshot
from connector.iceberg.commits.retry_commits import ActionText, retry_commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.commits.summaries import SUMMARY_MATERIALIZATION
from connector.iceberg.fences.file_names import find_file_prefix
from connector.iceberg.metadata.manifest_merging import (
    ManifestMerger,
    MergeThresholds,
    kind_of,
    lists_files,
    size_of,
)
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.table_properties import name_table_in_errors
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage.storage_errors import translate_errors

MERGE: Final = ActionText("merge manifests", "manifests were merged")
SUMMARY_MAINTENANCE: Final = "flow.maintenance"  # in the snapshots that maintenance adds: its action


@dataclass(frozen=True)
class ManifestPlan:
    """The small manifests of a table, in groups: each group becomes one manifest."""

    table: Table
    groups: Sequence[Sequence[ManifestFile]]
    kept: Sequence[ManifestFile]
    has_more: bool  # groups that a limit has left out

    @property
    def replaced(self) -> list[ManifestFile]:
        """All manifests that are written again."""
        return [manifest for group in self.groups for manifest in group]

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(map(size_of, self.replaced))


def plan_manifests(table: Table, max_bytes: float = math.inf) -> ManifestPlan:
    """Plan which manifests become one: small ones of the same partition spec and kind, up to the target size.
    One that lists deleted files only goes.

    At most `max_bytes` are read, but at least one group. A group that is too large is passed over.
    """
    with name_table_in_errors(table):
        target = MergeThresholds.of(table.properties).size
    with translate_errors(table.location()):
        manifests = manifests_of(table, table.current_snapshot())
    groups, left, has_more = list[Sequence[ManifestFile]](), max_bytes, False
    small = (each for each in manifests if size_of(each) < target or not lists_files(each))
    for one_kind in group_by(small, kind_of).values():
        for group in divide(one_kind, target, size_of):
            if len(group) == 1 and lists_files(group[0]):
                continue
            size = sum(map(size_of, group))
            if not groups or size <= left:
                groups.append(group)
                left -= size
            else:
                has_more = True
    replaced = {manifest.manifest_path for group in groups for manifest in group}
    return ManifestPlan(table, groups, [each for each in manifests if each.manifest_path not in replaced], has_more)


def rewrite_manifests(
    catalog: Catalog,
    path: TableIdentifier,
    owner: Owner | None,
    max_bytes: float = math.inf,
    interruption: Interruption = NEVER,
) -> ManifestPlan:
    """Merge the small manifests of a table, and return the plan that was performed.

    Other writers may commit meanwhile: then the plan is made again. Raises the errors of `retry_commit`, and
    InterruptedMaintenanceError if interrupted before the commit.
    """
    rewrite = _ManifestRewrite(catalog, path, owner, max_bytes)
    return retry_commit(path, MERGE, partial(rewrite.perform, interruption))


class _ManifestRewrite:
    """The attempts of one merge. What an attempt has written serves the next one, if it still fits."""

    def __init__(self, catalog: Catalog, path: TableIdentifier, owner: Owner | None, max_bytes: float) -> None:
        self._catalog = catalog
        self._path = path
        self._owner = owner
        self._max_bytes = max_bytes
        self._snapshots = SnapshotWriter()
        self._merger = ManifestMerger()
        self._sent: tuple[int, ManifestPlan] | None = None  # the id of the snapshot, and its plan

    def perform(self, interruption: Interruption) -> ManifestPlan:
        table = self._catalog.load_table(self._path)
        if landed := self._find_landed(table):
            return landed
        plan = plan_manifests(table, self._max_bytes)
        if plan.groups:
            interruption.check()
            self._commit(plan)
        return plan

    def _find_landed(self, table: Table) -> ManifestPlan | None:
        """Return the plan of an earlier attempt whose outcome was unknown, if it was committed."""
        if self._sent is None:
            return None
        snapshot_id, plan = self._sent
        return plan if table.metadata.snapshot_by_id(snapshot_id) else None

    def _commit(self, plan: ManifestPlan) -> None:
        table = plan.table
        prefix = find_file_prefix(table, self._owner)
        with translate_errors(table.location()):
            factory = self._snapshots.make_factory(table, prefix)
            merged = [each for group in plan.groups for each in self._merger.write_merged(factory, group)]
            summary = {
                **({SUMMARY_MATERIALIZATION: self._owner.materialization} if self._owner else {}),
                SUMMARY_MAINTENANCE: "manifests",
                "manifests-replaced": str(len(plan.replaced)),
                "manifests-created": str(len(merged)),
                "manifests-kept": str(len(plan.kept)),
            }
            schema_id = table.metadata.current_schema_id
            snapshot = self._snapshots.replace(table, prefix, [*merged, *plan.kept], schema_id, summary)
        self._sent = snapshot.snapshot_id, plan
        commit_snapshot(self._catalog, table, snapshot)
