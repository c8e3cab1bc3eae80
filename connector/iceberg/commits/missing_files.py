"""Checks that staged files exist before they are committed.

A table that refers to a missing file cannot be read. No snapshot refers to a staged file. So a job of another engine
that removes orphan files deletes it once it is old enough.
"""

import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from connector.host.errors import BACKFILL, UnfitCommitError
from connector.host.threads import map_in_threads
from connector.iceberg.metadata.partitions import PartitionReader
from connector.model.state import FileList, StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage import storage_errors
from connector.storage.file_io import files_of
from connector.storage.stored_files import files_under

CHECKS_AT_ONCE: Final = 16  # of each table; each waits for its store most of the time
NAMED: Final = 3  # files in an error

_Named: TypeAlias = tuple[StagedCommit, str]  # and the location of one of its files


@dataclass(frozen=True)
class MissingFile:
    """A staged file that is gone: a data file, or the object that lists a commit's data files."""

    commit: StagedCommit
    location: str


def check_staged_files(table: Table, staged: Sequence[StagedCommit], found: set[str]) -> None:
    """Raise UnfitCommitError if files of these commits are gone, RetryableError if the store does not answer now.

    `found` has the fence values of commits whose files were found before. It gets those of the others.
    """
    unchecked = [commit for commit in staged if commit.next not in found]
    if missing := find_missing_files(table, unchecked):
        raise _explain_missing(table, staged, missing)
    found.update(commit.next for commit in unchecked)


def find_missing_files(table: Table, staged: Sequence[StagedCommit]) -> list[MissingFile]:
    """Return the staged files that are gone, in order; if a file list is gone, only that list."""
    missing = _find_missing(table, [(commit, location) for commit in staged for location in commit.locations])
    unlisted = {file.location for file in missing}
    listed = [
        commit for commit in staged if isinstance(commit.files, FileList) and commit.files.location not in unlisted
    ]

    def named(commit: StagedCommit) -> list[_Named]:
        return [(commit, file.path) for file in files_of(table.io, commit.files)]

    lists = map_in_threads(named, listed, "check", CHECKS_AT_ONCE)
    return missing + _find_missing(table, [one for files in lists for one in files])


def find_unplaced(table: Table, staged: Sequence[StagedCommit], incomplete: Collection[str]) -> list[StagedCommit]:
    """Return the commits with files of a partition spec that the table does not have any more.

    Commits whose fence values are in `incomplete` have missing files, and are left out.
    """
    return [commit for commit in staged if commit.next not in incomplete and not _is_placed(table, commit)]


def _is_placed(table: Table, commit: StagedCommit) -> bool:
    if files := files_of(table.io, commit.files):
        try:
            reader = PartitionReader(table, commit.spec_id)
            for file in files:
                reader.read(file)
        except UnfitCommitError:
            return False
    return True


def _find_missing(table: Table, named: Sequence[_Named]) -> list[MissingFile]:
    locations = [location for _, location in named]
    answers = map_in_threads(lambda location: _is_missing(table.io, location), locations, "check", CHECKS_AT_ONCE)
    gone = dict(zip(locations, answers, strict=True))
    # Users who may not ask for a single file that does not exist may list its directory.
    listed: set[str] = set()
    for directory in sorted({posixpath.dirname(location) for location in locations if gone[location] is None}):
        with storage_errors.translate_errors(directory):
            listed.update(files_under(table.io, directory))
    return [MissingFile(*one) for one in named if gone[one[1]] or (gone[one[1]] is None and one[1] not in listed)]


def _is_missing(io: FileIO, location: str) -> bool | None:
    """Whether a file does not exist. None if the store does not let the user know."""
    with storage_errors.translate_errors(location):
        try:
            return not io.new_input(location).exists()
        except OSError as error:
            if storage_errors.is_forbidden(error):
                return None
            raise


def _explain_missing(table: Table, staged: Sequence[StagedCommit], missing: Sequence[MissingFile]) -> UnfitCommitError:
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return UnfitCommitError(
        f"table {TableIdentifier.of(table)}: {len(missing)} staged file(s) are gone: "
        f"{', '.join(file.location for file in missing[:NAMED])}{more}. A job that removes orphan files may have "
        f"deleted them. The {sum(commit.rows for commit in staged)} staged rows of this table were not added, and "
        "stay in the task's state. Put the files back and start the task again, or give up their rows with "
        f"`materialize-iceberg fence reset --staged skip`, or {BACKFILL}."
    )
