"""Defects of what the threads of one process share, which no process has whose tables are committed one by one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from connector.host.errors import ConnectorError
from connector.iceberg.commits.commit_outcomes import Outcome
from connector.model.state import StagedCommit
from connector.session.backlog import Backlog
from connector.session.committer import Committer
from simulation.actors import Actor, running
from simulation.defects import Plant


def commits_are_reported_when_those_of_all_tables_have_ended(patch: pytest.MonkeyPatch) -> None:
    record, commit_due = Committer._record, Committer._commit_due
    held = defaultdict[Actor, list[StagedCommit]](list)  # by the thread that has begun the attempt

    def hold(committer: Committer, outcome: Outcome) -> Sequence[StagedCommit] | ConnectorError:
        ended = record(committer, outcome)
        if isinstance(ended, ConnectorError):
            return ended
        held[running().process] += ended
        return ()

    def commit_then_report(committer: Committer) -> Any:
        tried = commit_due(committer)
        committer._ended += held.pop(running().process, [])
        return tried

    patch.setattr(Committer, "_record", hold)
    patch.setattr(Committer, "_commit_due", commit_then_report)


def what_ends_while_commits_are_reported_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def commit(committer: Committer, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        with committer._changed:
            committer._backlog.add(staged)
        committer._commit_due()
        with committer._changed:
            ended = [*committer._ended]
        with committer._changed:
            committer._ended.clear()
        return ended

    patch.setattr(Committer, "commit", commit)


def a_table_is_tried_by_two_attempts_at_once(patch: pytest.MonkeyPatch) -> None:
    def find_due_times(backlog: Backlog) -> dict[Any, float]:
        return {chain.commits[0].table_id: chain.due for chain in backlog._chains.values()}

    patch.setattr(Backlog, "_find_due_times", find_due_times)


THREAD_DEFECTS: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        a_table_is_tried_by_two_attempts_at_once,
        commits_are_reported_when_those_of_all_tables_have_ended,
        what_ends_while_commits_are_reported_is_forgotten,
    )
}
