"""An operator's way out for a fenced task: what its state and its table know of each other, and a new fence value.

A reset gives the fence a value that no process has read yet. Only a recovery from the state can go on from there: a
process that still runs stays fenced.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from pyiceberg.table import Table

from connector.host.errors import CommitUnknownError, FencedError, RetryableError, UserError
from connector.iceberg.commits import fence
from connector.iceberg.commits.commit import land
from connector.iceberg.commits.commit_errors import REFUSED, unknown
from connector.iceberg.commits.snapshot import SnapshotWriter, writer_summary
from connector.iceberg.commits.staged_files import MissingFile, missing_files
from connector.iceberg.commits.writers import RESET_PREFIX
from connector.iceberg.metadata.references import file_name, find_unreferenced
from connector.iceberg.metadata.table_properties import check_properties, name_table_in_errors
from connector.model.state import FileList, StagedCommit
from connector.storage import storage_errors
from connector.storage.file_lists import files_of


class Verdict(StrEnum):
    """What opening the task would make of a staged commit."""

    LANDED = "landed"
    WOULD_LAND = "would land"
    FENCED = "fenced"
    FILES_MISSING = "cannot land: staged files are gone"
    OTHER_TABLE = "other_table"


class Decision(StrEnum):
    """What is to become of a fenced writer's staged commits."""

    ADD = "add"
    SKIP = "skip"


@dataclass(frozen=True)
class Judged:
    """A staged commit, and what the table says of it."""

    staged: StagedCommit
    verdict: Verdict


@dataclass(frozen=True)
class Reset:
    """What is to be done to one writer's fence."""

    chain: tuple[StagedCommit, ...]
    value: str
    consequences: tuple[str, ...]


def judge(table: Table, staged: Sequence[StagedCommit]) -> list[Judged]:
    """What opening the task would make of each, in the order in which they were staged."""
    here = [commit for commit in staged if commit.table_uuid == str(table.metadata.table_uuid)]
    verdicts = [Judged(commit, Verdict.OTHER_TABLE) for commit in staged if commit not in here]
    for chain in fence.chains(here):
        try:
            rest = fence.remaining_commits(chain, table.properties)
        except FencedError:
            verdicts += [Judged(commit, Verdict.FENCED) for commit in chain]
        else:
            verdicts += [Judged(commit, Verdict.LANDED) for commit in chain[: len(chain) - len(rest)]]
            verdicts += _judged_by_files(table, rest)
    return verdicts


def _judged_by_files(table: Table, unlanded: Sequence[StagedCommit]) -> list[Judged]:
    """A commit whose files are gone holds up those before it, too: a chain lands as one."""
    incomplete = {file.commit.next for file in missing_files(table, unlanded)}
    lost = max((number for number, commit in enumerate(unlanded, start=1) if commit.next in incomplete), default=0)
    return [
        *(Judged(commit, Verdict.FILES_MISSING) for commit in unlanded[:lost]),
        *(Judged(commit, Verdict.WOULD_LAND) for commit in unlanded[lost:]),
    ]


def plan(table: Table, chain: Sequence[StagedCommit], decision: Decision) -> Reset:
    """How the writer of a chain that cannot land can go on, and what that costs; UserError where that would damage the
    table."""
    files_missing = missing_files(table, chain)
    in_table = _in_table(table, chain, files_missing)
    missing = [commit for commit in chain if commit not in in_table]
    match decision:
        case Decision.ADD:
            if in_table:
                raise UserError(
                    f"{_count(in_table)} are in the table already: adding them again would double them. "
                    f"Use --staged {Decision.SKIP}."
                )
            if files_missing:
                raise UserError(
                    f"the staged file {files_missing[0].location} has been deleted: it cannot be added. Use --staged "
                    f"{Decision.SKIP}."
                )
            consequence = f"{_count(missing)} will be added when the task opens again."
            value = chain[0].prev
        case Decision.SKIP:
            consequence = " ".join(_cost_of_skipping(missing, _unknown(table, chain, files_missing)))
            value = chain[-1].next
    return Reset(
        tuple(chain),
        fence.reset_value(value),
        (
            consequence,
            "What other processes have committed for this writer since stays in the table. Rows of it that the task "
            "reads again, from the checkpoint that belongs to this state, will be there twice.",
        ),
    )


def perform(table: Table, reset: Reset, reason: str) -> None:
    """Give the fence its new value, if the table has not changed since it was loaded, and record why in the table."""
    writer = reset.chain[0].writer
    name = fence.property_name(writer)
    note = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "from": fence.read_value(table.properties, writer),
        "to": reset.value,
        "reason": reason,
    }
    properties = {name: reset.value, RESET_PREFIX + name.removeprefix(fence.PREFIX): json.dumps(note)}
    with name_table_in_errors(table):
        check_properties(table.properties)
    with storage_errors.translate_errors(table.location()):
        # Every change of a fence moves main: the fence that a commit has read is then still the one it meets.
        snapshot = SnapshotWriter().mark(table, writer, writer_summary(writer) | {"flow.fence-reset": reason})
    try:
        land(table.catalog, table, snapshot, properties)
    except REFUSED as error:
        raise RetryableError(
            f"table {'.'.join(table.name())} was changed in that moment ({error}): nothing was reset. Look again."
        ) from error
    except unknown() as error:
        raise CommitUnknownError(
            f"table {'.'.join(table.name())}: the catalog's answer got lost ({type(error).__name__}: {error}). "
            "`fence show` says whether the fence was reset."
        ) from error


def _cost_of_skipping(missing: Sequence[StagedCommit], unknown: Sequence[StagedCommit]) -> Iterator[str]:
    if absent := [commit for commit in missing if commit not in unknown]:
        yield (
            f"{_count(absent)} are in no snapshot that the table still has, and will never be added: unless another "
            "engine has rewritten them, they are lost until the source is read again."
        )
    if unknown:
        yield (
            f"{_count(unknown)} may be in the table or not, for the list of their files is gone. If they are not, "
            "they will never be added."
        )
    if not missing:
        yield "All staged rows are in the table already: none is lost."


def _unknown(table: Table, chain: Sequence[StagedCommit], files_missing: Sequence[MissingFile]) -> list[StagedCommit]:
    """The commits of which neither the fence nor the names of their files say whether they landed."""
    try:
        fence.remaining_commits(chain, table.properties)
    except FencedError:
        gone = {file.location for file in files_missing}
        return [commit for commit in chain if isinstance(commit.files, FileList) and commit.files.location in gone]
    return []  # none has landed: the fence says so


def _in_table(table: Table, chain: Sequence[StagedCommit], files_missing: Sequence[MissingFile]) -> list[StagedCommit]:
    """The commits with files that a snapshot of the table refers to."""
    # A list that is gone names no data files. No snapshot refers to the list itself: its commit counts as not added.
    gone = {file.location for file in files_missing}
    names = [{file_name(path) for path in _paths(table, commit, gone)} for commit in chain]
    absent = find_unreferenced(table, set().union(*names))
    return [commit for commit, its_names in zip(chain, names, strict=True) if its_names - absent]


def _paths(table: Table, commit: StagedCommit, gone: set[str]) -> Sequence[str]:
    if gone.issuperset(commit.locations):
        return commit.locations
    return [file.path for file in files_of(table.io, commit.files)]


def _count(staged: Sequence[StagedCommit]) -> str:
    return f"{sum(commit.rows for commit in staged)} row(s) of {len(staged)} staged transaction(s)"
