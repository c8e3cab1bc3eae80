"""What a table keeps: which of its snapshots and references have expired, and whether other files may be deleted.

What a loaded table says is enough for both: no file is read, and no server is asked.

The properties are Iceberg's, and one for the largest number of snapshots. Their meaning differs from Iceberg's in two
points, which help readers and other writers: the age of a snapshot counts from when it was replaced, and snapshots that
are staged for an audit are kept until they are published.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.metadata.table_properties import read_switch
from connector.model.properties import read_number

MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_KEPT: Final = "history.expire.min-snapshots-to-keep"
MAX_KEPT: Final = "flow.expire.max-snapshots-to-keep"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
GC_ENABLED: Final = "gc.enabled"
_LEAST: Final = {MAX_AGE: 0, MIN_KEPT: 1, MAX_KEPT: 1, MAX_REF_AGE: 1}
STAGED: Final = "wap.id"
SOURCE: Final = "source-snapshot-id"  # of a snapshot that publishes a staged one
IS_NESSIE: Final = "nessie.is-nessie-catalog"  # in what the server answers to a request for its config

# To expire snapshots costs a commit, and the manifest list of every snapshot that stays is read. So it waits for a
# batch. At a steady pace of commits, a fifth of the snapshots expire at once.
LATENESS: Final = 4  # the maximal age and the largest number may be exceeded, by themselves divided by this


@dataclass(frozen=True)
class Retention:
    """How long a table keeps its snapshots, how many of them at any age, and how many younger ones at most. Also how
    long it keeps branches and tags."""

    max_age: int  # milliseconds
    min_kept: int
    max_kept: int | None  # if it is less than `min_kept`, that counts
    max_ref_age: int | None = None  # milliseconds since the snapshot of the branch or tag; None: for ever

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Retention | None":
        """Read a table's properties. None if it does not ask for expiry, or forbids it; ValueError if they are
        invalid."""
        if MAX_AGE not in properties or not read_switch(properties, GC_ENABLED, True):
            return None
        check_expiry(properties)
        numbers = {name: int(properties[name]) for name in _LEAST if name in properties}
        return cls(numbers[MAX_AGE], numbers.get(MIN_KEPT, 1), numbers.get(MAX_KEPT), numbers.get(MAX_REF_AGE))

    @property
    def late(self) -> "Retention":
        """The same with the number of snapshots at which a batch is removed."""
        return replace(self, max_kept=self.max_kept and self.max_kept + self.max_kept // LATENESS)


@dataclass(frozen=True)
class Expired:
    """What a table no longer keeps: the ids of snapshots, and the names of branches and tags."""

    snapshots: Sequence[int] = ()
    references: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.references)


def check_expiry(properties: Mapping[str, str]) -> None:
    """Raise ValueError if one of these properties prevents that snapshots expire."""
    read_switch(properties, GC_ENABLED, True)
    # People set -1 to keep all snapshots. It would mean the opposite.
    for name, least in _LEAST.items():
        read_number(properties, name, least, least)


def find_expired(metadata: TableMetadata, now: int, lasting: Collection[str] = ()) -> Expired:
    """Return all that has expired. `now` is in milliseconds. `lasting` names branches and tags that stay at any age."""
    retention = Retention.of(metadata.properties)
    if retention is None:
        return Expired()
    old = _find_old_references(metadata, retention, now, lasting)
    return Expired(_find_expired(metadata, retention, now, old), old)


def find_due(metadata: TableMetadata, now: int, lasting: Collection[str] = ()) -> Expired:
    """Return all that has expired once a snapshot is late or a reference has expired; before, nothing. The arguments
    are those of `find_expired`."""
    retention = Retention.of(metadata.properties)
    if retention is None:
        return Expired()
    late = now - retention.max_age // LATENESS
    old = _find_old_references(metadata, retention, now, lasting)
    is_due = old or _find_expired(metadata, retention.late, late, old)
    return find_expired(metadata, now, lasting) if is_due else Expired()


def _find_expired(metadata: TableMetadata, retention: Retention, now: int, old: Collection[str]) -> list[int]:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    refs = [ref for name, ref in metadata.refs.items() if name not in old]
    kept = {ref.snapshot_id for ref in refs}
    reached: set[int] = set()
    for ref in refs:
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            ancestors = list(_ancestors(by_id, ref.snapshot_id))
            kept.update(_find_kept(ancestors, _of_branch(ref, retention), now))
            reached.update(ancestor.snapshot_id for ancestor in ancestors)
    publishers = {_read_summary(by_id[each], SOURCE): each for each in reached}

    def has_expired(snapshot: Snapshot) -> bool:
        if snapshot.snapshot_id in kept or snapshot.snapshot_id in reached:
            return snapshot.snapshot_id not in kept
        is_old = snapshot.timestamp_ms < now - retention.max_age
        if _read_summary(snapshot, STAGED) is None:
            return is_old
        publisher = publishers.get(str(snapshot.snapshot_id))
        # It goes with its publisher at the latest: then nothing says any more that it was published.
        return publisher is not None and (is_old or publisher not in kept)

    return [snapshot.snapshot_id for snapshot in metadata.snapshots if has_expired(snapshot)]


def _find_old_references(
    metadata: TableMetadata, retention: Retention, now: int, lasting: Collection[str]
) -> list[str]:
    """Return the branches and tags whose snapshots are older than they say, or else the table. As in Iceberg, the age
    counts from the commit of the snapshot, and the main branch stays."""
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    return [
        name
        for name, ref in metadata.refs.items()
        if name != MAIN_BRANCH
        and name not in lasting
        and (age := ref.max_ref_age_ms or retention.max_ref_age) is not None
        and times.get(ref.snapshot_id, now) < now - age
    ]


def _ancestors(by_id: Mapping[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)):
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def _of_branch(ref: SnapshotRef, table: Retention) -> Retention:
    max_kept = None if ref.max_snapshot_age_ms else table.max_kept
    return Retention(ref.max_snapshot_age_ms or table.max_age, ref.min_snapshots_to_keep or table.min_kept, max_kept)


def _find_kept(newest_first: Iterable[Snapshot], retention: Retention, now: int) -> Iterator[int]:
    replaced_at = now
    for number, snapshot in enumerate(newest_first):
        is_too_many = retention.max_kept is not None and number >= retention.max_kept
        if number >= retention.min_kept and (is_too_many or replaced_at < now - retention.max_age):
            return
        yield snapshot.snapshot_id
        replaced_at = snapshot.timestamp_ms


def _read_summary(snapshot: Snapshot, name: str) -> str | None:
    return snapshot.summary.additional_properties.get(name) if snapshot.summary else None


def is_in_nessie(table: Table) -> bool:
    """Whether the table's catalog is Nessie. There, a table has none of the snapshots of other branches and tags."""
    return table.catalog.properties.get(IS_NESSIE) == "true"


def may_delete_files(table: Table) -> bool:
    """Whether files to which no snapshot of the table refers may be deleted. ValueError if the property is invalid.

    If gc.enabled is false, something outside may refer to them. In Nessie it is false unless a user has changed it, but
    then, too, other branches and tags refer to files that the table does not show.
    """
    return not is_in_nessie(table) and read_switch(table.properties, GC_ENABLED, True)
