"""Reads the connector state. All of it is checked before it is used, and an error names the place.

If any part of the state cannot be read, all of it is refused and left unchanged. To apply only the readable part could
add rows in the wrong order, and would delete entries that another image can read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from connector.host.errors import UserError
from connector.host.groups import group_by
from connector.model.estuary_state import ESTUARY_NAMES
from connector.model.state import (
    FENCE_VALUE,
    KEY_RANGE,
    UUID,
    VERSION,
    Entry,
    EntryBase,
    FinishedCommit,
    Name,
    StagedCommit,
    WriterId,
)
from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json

_STATE: Final = "the task's state"
_LONGEST: Final = 100  # characters of a name that are repeated in an error
_RANGE: Final = re.compile(KEY_RANGE)
_FENCE: Final = re.compile(FENCE_VALUE)
_TABLE_UUID: Final = re.compile(UUID)
# How msgspec's error begins for a field that the form does not have, by name or by place.
_UNKNOWN_FIELD: Final = "Object contains unknown field"
_UNKNOWN: Final = (_UNKNOWN_FIELD, "Expected `array` of at most length")

_SECOND: Final = 2  # the first version that an entry names
# The version that has added each field of an entry, by its name in the state.
ADDED_IN: Final = {"located": 3, "sortOrderId": 4, "published": 5, "offsets": 5, "updates": 6}

T = TypeVar("T")


class _FirstEntry(EntryBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A staged commit in the form of version 1, which names no version.

    Later entries have `table` instead of `path`. So an image that only knows version 1 refuses them. Otherwise it would
    apply the part that it knows, and then delete the entry.
    """

    path: tuple[Name, Name]


class _State(msgspec.Struct, frozen=True, rename="camel"):
    binding_states: dict[str, Json] | None = None
    finished: dict[str, Json] | None = None


def read_state(materialization: str, state: Json) -> list[StagedCommit]:
    """Return every staged commit that the state names, in no particular order.

    Raises UserError if any part of the state is not in the connector's form.
    """
    staged = list(_read_staged(materialization, state))
    read_finished(materialization, state)  # all of the state is checked before any of it is used
    for commits in group_by(staged, attrgetter("chain_id")).values():
        _check_order(commits)
    return staged


def read_finished(materialization: str, state: Json) -> list[FinishedCommit]:
    """Return the newest commit of each writer and table that the state does not name as staged any more.

    Raises UserError if this part of the state is not in the connector's form.
    """
    return [] if state is None else list(_read_finished(materialization, state))


def _read_staged(materialization: str, state: Json) -> Iterator[StagedCommit]:
    if state is None:
        return
    for state_key, ranges in (_read(_STATE, state, _State).binding_states or {}).items():
        where_key = f"{_STATE}, state key {_quote(state_key)}"
        by_name = {} if ranges is None else _read(where_key, ranges, dict[str, Json])
        for key_range, entries in _own_ranges(by_name).items():
            where_range = f"{where_key}, key range {_quote(key_range)}"
            _check_key_range(where_range, key_range)
            writer = WriterId(materialization, state_key, key_range)
            by_fence = {} if entries is None else _read(where_range, entries, dict[str, Json])
            for fence, entry in by_fence.items():
                where = f"{where_range}, entry {_quote(fence)}"
                _check_fence_value(where, fence)
                if entry is not None:  # deleted: Flow's V2 runtime of before June 2026 kept nulls of our patches
                    yield _read_staged_commit(where, writer, fence, entry)


def _read_finished(materialization: str, state: Json) -> Iterator[FinishedCommit]:
    for state_key, ranges in (_read(_STATE, state, _State).finished or {}).items():
        where_key = f"{_STATE}, finished commits, state key {_quote(state_key)}"
        for key_range, by_table in _read(where_key, ranges, dict[str, Json]).items():
            where_range = f"{where_key}, key range {_quote(key_range)}"
            _check_key_range(where_range, key_range)
            for table_uuid, value in _read(where_range, by_table, dict[str, Json]).items():
                if not (_TABLE_UUID.fullmatch(table_uuid) and isinstance(value, str) and _FENCE.fullmatch(value)):
                    where = f"{where_range}, table {_quote(table_uuid)}"
                    raise _explain_garbled(where, "it is a table's UUID, with a fence value of 32 hexadecimal digits")
                yield FinishedCommit(WriterId(materialization, state_key, key_range), table_uuid, value)


def _own_ranges(kept: Mapping[str, Json]) -> dict[str, Json]:
    """Pick the entries of this connector, by key range, from the state of one state key."""
    return {name: value for name, value in kept.items() if name not in ESTUARY_NAMES}


def _check_key_range(where: str, key_range: str) -> None:
    begin, _, end = key_range.partition("-")
    if not _RANGE.fullmatch(key_range) or begin > end:
        raise _explain_garbled(where, "a key range has the form 00000000-ffffffff, and does not end before it begins")


def _check_fence_value(where: str, fence: str) -> None:
    if not _FENCE.fullmatch(fence):
        raise _explain_garbled(where, "the name of an entry is a fence value, 32 hexadecimal digits")


def _read_staged_commit(where: str, writer: WriterId, fence: str, kept: Json) -> StagedCommit:
    entry = _read_entry(where, _read(where, kept, dict[str, Json]))
    if entry.files and entry.file_list:
        raise _explain_garbled(where, "an entry has either `files` or `fileList`")
    if not (entry.files or entry.file_list or (entry.located and entry.located.location)):
        raise _explain_garbled(where, "an entry has `files`, `fileList` or `located`")
    values = msgspec.structs.asdict(entry)
    files = values.pop("file_list") or entry.files
    values |= {"path": TableIdentifier(*entry.path), "files": files}
    return StagedCommit(writer=writer, next=fence, is_recovered=True, **values)


def _read_entry(where: str, kept: Mapping[str, Json]) -> Entry:
    if "version" not in kept:
        return Entry(**msgspec.structs.asdict(_read(where, kept, _FirstEntry)))
    version = kept["version"]
    if not isinstance(version, int) or version < _SECOND:
        return _read(where, kept, Entry)  # raises: no image writes such a version
    if version > VERSION:
        raise _explain_newer(where, f"it has version {version}, and this image reads up to version {VERSION}")
    if unknown := [name for name in kept if ADDED_IN.get(name, _SECOND) > version]:
        raise _explain_newer(where, f"{_UNKNOWN_FIELD} `{unknown[0]}`")
    return _read(where, {**kept, "version": VERSION}, Entry)


def _check_order(staged: Sequence[StagedCommit]) -> None:
    """Raise UserError unless the pending commits of one chain follow each other in one line."""
    followers: dict[str, StagedCommit] = {}
    for commit in staged:
        other = followers.setdefault(commit.follows, commit)
        if other is not commit:
            raise _explain_garbled(
                _describe_entry(commit), f"entry {other.next} follows the same value, {commit.follows or 'none'}"
            )
    nexts = {commit.next for commit in staged}
    first = [commit for commit in staged if commit.follows not in nexts]
    for commit in first[1:]:
        raise _explain_garbled(
            _describe_entry(commit), f"no entry has the value that it follows, {commit.follows or 'none'}"
        )
    value = first[0].follows if first else None
    while value in followers:
        value = followers.pop(value).next
    for commit in followers.values():
        raise _explain_garbled(_describe_entry(commit), "it follows itself, directly or by way of other entries")


def _read(where: str, kept: Json, form: type[T]) -> T:
    try:
        return msgspec.convert(kept, form)
    except msgspec.ValidationError as error:
        problem = str(error)
        raise (_explain_newer if problem.startswith(_UNKNOWN) else _explain_garbled)(where, problem) from error


def _explain_garbled(where: str, problem: str) -> UserError:
    return UserError(
        f"{where}: {problem}. This connector does not write this: another connector wrote it, or it was changed by "
        "hand. Nothing was committed, and the state was not changed. Restore the state from before the change."
    )


def _explain_newer(where: str, problem: str) -> UserError:
    return UserError(
        f"{where}: {problem}. A newer version of this connector wrote it, or it was changed by hand. Nothing was "
        "committed, and the state was not changed. Run the task with the newer image."
    )


def _describe_entry(commit: StagedCommit) -> str:
    writer = commit.writer
    where_range = f"{_STATE}, state key {_quote(writer.state_key)}, key range {_quote(writer.key_range)}"
    return f"{where_range}, entry {_quote(commit.next)}"


def _quote(name: str) -> str:
    """Quote a name that may be any text, and shorten it."""
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…")
