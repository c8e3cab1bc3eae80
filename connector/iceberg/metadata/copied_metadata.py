"""Metadata that PyIceberg can copy quickly and write, also in format version 3."""

from collections.abc import Mapping
from typing import Any, Self

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel


class _Sharing(IcebergBaseModel):
    """Metadata whose copies share all parts that no update replaces. No code changes metadata in place.

    PyIceberg's commit makes a deep copy. With some hundred snapshots that takes as long as the rest of the commit.
    """

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
    def model_dump_json(self, *args: Any, **options: Any) -> str:
        """Return the metadata as a file has it. PyIceberg refuses to write metadata of version 3."""
        return IcebergBaseModel.model_dump_json(self, *args, **options)


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
