"""Looks for staged files before they are committed: a table that refers to a file that is gone cannot be read.

No snapshot refers to a staged file, so a job of another engine that removes orphan files deletes it once it is old
enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.host.threads import map_in_threads
from connector.model.state import FileList, StagedCommit
from connector.storage import storage_errors
from connector.storage.file_lists import files_of

LOOKS_AT_ONCE: Final = 16  # of each table; a look waits for its store most of the time
NAMED: Final = 3  # files in an error

_Named: TypeAlias = tuple[StagedCommit, str]  # and the location of one of its files


@dataclass(frozen=True)
class MissingFile:
    """A staged file that is gone: a data file, or the object that lists a commit's data files."""

    commit: StagedCommit
    location: str


class StagedFiles:
    """One chain's staged files, looked for once for all attempts."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def check(self, table: Table, staged: Sequence[StagedCommit]) -> None:
        """UserError if files of these commits are gone; RetryableError if the store cannot say so now."""
        unseen = [commit for commit in staged if commit.next not in self._found]
        if missing := missing_files(table, unseen):
            raise _missing(table, staged, missing)
        self._found.update(commit.next for commit in unseen)


def missing_files(table: Table, staged: Sequence[StagedCommit]) -> list[MissingFile]:
    """The staged files that are gone, in order. Of a commit whose list of files is gone, only the list is known."""
    missing = _missing_of(table, [(commit, location) for commit in staged for location in commit.locations])
    unlisted = {file.location for file in missing}
    listed = [
        commit for commit in staged if isinstance(commit.files, FileList) and commit.files.location not in unlisted
    ]

    def named(commit: StagedCommit) -> list[_Named]:
        return [(commit, file.path) for file in files_of(table.io, commit.files)]

    lists = map_in_threads(named, listed, LOOKS_AT_ONCE, "look")
    return missing + _missing_of(table, [one for files in lists for one in files])


def _missing_of(table: Table, named: Sequence[_Named]) -> list[MissingFile]:
    def is_missing(one: _Named) -> bool:
        _, location = one
        with storage_errors.translate_errors(location):
            return not table.io.new_input(location).exists()

    looks = map_in_threads(is_missing, named, LOOKS_AT_ONCE, "look")
    return [MissingFile(*one) for one, is_gone in zip(named, looks, strict=True) if is_gone]


def _missing(table: Table, staged: Sequence[StagedCommit], missing: Sequence[MissingFile]) -> UserError:
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return UserError(
        f"table {'.'.join(table.name())}: {len(missing)} staged file(s) are gone: "
        f"{', '.join(file.location for file in missing[:NAMED])}{more}. A job that removes orphan files may have "
        f"deleted them. The {sum(commit.rows for commit in staged)} rows that wait for this table were not added, and "
        "stay in the task's state. Put the files back and start the task again, or give up their rows with "
        "`materialize-iceberg fence reset --staged skip`, or backfill the binding, which begins with a new table."
    )
