"""Metadata that PyIceberg can copy and write quickly, also in format version 3."""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, Final, Self

from pyiceberg.table.metadata import TableMetadata, TableMetadataCommonFields, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel

_TEXTS: Final = 8 << 20  # bytes of JSON of snapshots that are kept, of all tables
_NO_SNAPSHOTS: Final = '"snapshots":[]'  # no string in JSON has these quotes


class _SnapshotTexts:
    """Snapshots as JSON. Every commit writes all snapshots of its table again, and a snapshot never changes."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, str], str] = {}  # by id and manifest list
        self._size = 0
        self._lock = Lock()  # commits to several tables run at the same time

    def join(self, snapshots: Iterable[Snapshot]) -> str:
        """Return the elements of a JSON array."""
        with self._lock:
            text = ",".join(self._texts.get(_key_of(each)) or self._add(each) for each in snapshots)
            while self._size > _TEXTS:
                self._size -= len(self._texts.pop(next(iter(self._texts))))
        return text

    def _add(self, snapshot: Snapshot) -> str:
        text = snapshot.model_dump_json()
        self._texts[_key_of(snapshot)] = text
        self._size += len(text)
        return text


def _key_of(snapshot: Snapshot) -> tuple[int, str]:
    return snapshot.snapshot_id, snapshot.manifest_list


_written_snapshots: Final = _SnapshotTexts()


class _Sharing(TableMetadataCommonFields):
    """Metadata whose copies share all parts that no update replaces. No code changes metadata in place.

    PyIceberg's commit makes a deep copy. With some hundred snapshots that takes as long as the rest of the commit.
    """

    def model_dump_json(self, *args: Any, **options: Any) -> str:
        """Return the metadata as a file has it, also in version 3, which PyIceberg refuses to write."""
        others = self.model_copy(update={"snapshots": []})
        before, found, after = IcebergBaseModel.model_dump_json(others, *args, **options).partition(_NO_SNAPSHOTS)
        assert found, "a file without snapshots would lose the table's rows"
        return f'{before}"snapshots":[{_written_snapshots.join(self.snapshots)}]{after}'

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002 - pydantic's signature
    ) -> Self:
        return super().model_copy(update=update)


class _SharingV2(_Sharing, TableMetadataV2):
    pass


class _SharingV3(_Sharing, TableMetadataV3):
    pass


def share_parts(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata. Its copies share all parts that no update replaces."""
    return _convert(metadata, {TableMetadataV2: _SharingV2, TableMetadataV3: _SharingV3})


def unshare_parts(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata as an object of PyIceberg's own class."""
    return _convert(metadata, {_SharingV2: TableMetadataV2, _SharingV3: TableMetadataV3})


def make_first_metadata(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata of a new table as PyIceberg can write it. No row of it has an id yet."""
    return _convert(metadata.model_copy(update={"next_row_id": 0}), {TableMetadataV3: _SharingV3})


def _convert(metadata: TableMetadata, kinds: Mapping[type, type[TableMetadata]]) -> TableMetadata:
    """Return the same metadata as an object of another class."""
    kind = kinds.get(type(metadata))
    if kind is None:
        return metadata
    return kind.model_construct(_fields_set=metadata.model_fields_set, **dict(metadata))
