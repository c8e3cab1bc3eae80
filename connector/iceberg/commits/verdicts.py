"""Says what opening a task would do with its staged commits, by comparing each of them with the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.table import Table

from connector.host.errors import FencedError
from connector.iceberg.commits.missing_files import find_missing_files, find_unplaced
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import StagedCommit
from connector.model.table_identifier import Owner


class Verdict(StrEnum):
    """What opening the task would do with a staged commit."""

    COMMITTED = "committed"
    WILL_BE_COMMITTED = "will be committed"
    FENCED = "fenced"
    FILES_MISSING = "cannot be committed: staged files are gone"
    SPEC_MISSING = "cannot be committed: its partition spec is gone"
    SUPERSEDED = "superseded"
    OTHER_TABLE = "other_table"


@dataclass(frozen=True)
class JudgedCommit:
    """A staged commit, and its verdict."""

    staged: StagedCommit
    verdict: Verdict


def judge_commits(table: Table, staged: Sequence[StagedCommit]) -> list[JudgedCommit]:
    """Return what opening the task would do with each commit, by writer, in the order in which they were staged."""
    here, verdicts, owner = [], [], Owner.of(table.properties)
    for commit in staged:
        generation = find_generation(table, commit.writer.materialization)
        if commit.table_uuid == generation.uuid:
            here.append(commit)
        else:
            is_earlier = commit.table_uuid in generation.former and not commit.writer.is_of(owner)
            verdicts.append(JudgedCommit(commit, Verdict.SUPERSEDED if is_earlier else Verdict.OTHER_TABLE))
    for pending in fence.group_by_writer(here):
        try:
            remaining = fence.remaining_commits(pending, table.properties)
        except FencedError:
            verdicts += [JudgedCommit(commit, Verdict.FENCED) for commit in pending]
        else:
            verdicts += [JudgedCommit(commit, Verdict.COMMITTED) for commit in pending[: len(pending) - len(remaining)]]
            verdicts += _judge_by_files(table, remaining)
    return verdicts


def _judge_by_files(table: Table, remaining: Sequence[StagedCommit]) -> list[JudgedCommit]:
    """Judge the remaining commits of one writer. They become one commit, so an obstacle stops earlier ones, too."""
    incomplete = {file.commit.next for file in find_missing_files(table, remaining)}
    unplaced = {commit.next for commit in find_unplaced(table, remaining, incomplete)}
    verdict, judged = Verdict.WILL_BE_COMMITTED, []
    for commit in reversed(remaining):
        if commit.next in incomplete:
            verdict = Verdict.FILES_MISSING
        elif commit.next in unplaced:
            verdict = Verdict.SPEC_MISSING
        judged.append(JudgedCommit(commit, verdict))
    return judged[::-1]
