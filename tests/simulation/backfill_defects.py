"""Defects of backfills that the simulation has to find, each planted in the shipped code from outside."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from pyiceberg.table import Table

from connector.iceberg import session_views
from connector.iceberg.commits import backfill
from connector.iceberg.commits.snapshot import RemovedFiles
from connector.iceberg.metadata.manifests import manifests_of
from connector.model.table_identifier import Generation
from support import private_connector
from support.tables.broken_backfills import take_former_for_present


def rows_of_before_stay(patch: pytest.MonkeyPatch) -> None:
    def keep(table: Table, *_: Any) -> RemovedFiles:
        return RemovedFiles(manifests_of(table, table.current_snapshot()), {})

    patch.setattr(backfill, "remove_rows", keep)


def a_backfill_replaces_the_rows_of_every_commit(patch: pytest.MonkeyPatch) -> None:
    begin = backfill.begin_generation

    def go_on(table: Table, generation: Generation, schema: Any) -> Any:
        *others, _ = begin(table, generation, schema)
        return others

    patch.setattr(backfill, "begin_generation", go_on)


def what_was_staged_before_lands_after(patch: pytest.MonkeyPatch) -> None:
    """What was staged for a former generation passes for staged for the present one."""
    commit_pending = getattr(*private_connector.COMMIT_PENDING)

    def commit_all(pending: private_connector.PendingCommits) -> Any:
        return replace(commit_pending(take_former_for_present(pending)), staged=tuple(pending.staged))

    patch.setattr(*private_connector.COMMIT_PENDING, commit_all)


def loads_see_rows_of_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_views, "restrict_to_generation", lambda table, _generation: table)


BACKFILL_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    plant.__name__: plant
    for plant in (
        rows_of_before_stay,
        a_backfill_replaces_the_rows_of_every_commit,
        what_was_staged_before_lands_after,
        loads_see_rows_of_before,
    )
}
