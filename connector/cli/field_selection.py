"""Selects the fields of a binding as the runtime does, and reads their values from documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from connector.cli.documents import read_location
from connector.cli.projections import PUBLISHED_AT, ROOT_FIELD, UUID_PTR
from connector.evolution.candidate import Candidate
from connector.evolution.new_columns import constrain_new_column
from connector.host.errors import UserError
from protocol.flow import Collection, ConstraintType, FieldSelection, Json, Projection

_UUID_EPOCH: Final = datetime(1582, 10, 15, tzinfo=UTC)
_SELECTED: Final = {ConstraintType.LOCATION_RECOMMENDED, ConstraintType.LOCATION_REQUIRED}


@dataclass(frozen=True)
class SelectedFields:
    """The fields that a binding materializes: those of the key, and the others."""

    keys: tuple[Projection, ...]
    values: tuple[Projection, ...]

    @property
    def selection(self) -> FieldSelection:
        """Flow's form, with the root document."""
        return FieldSelection(
            tuple(each.field for each in self.keys), tuple(each.field for each in self.values), ROOT_FIELD
        )

    def read_values(self, document: Json, now: datetime) -> list[Json]:
        """Read the values that are not of the key. A document without a publication time was published now."""
        return [_read_value(document, each, now) for each in self.values]


def select_fields(collection: Collection, constraints: Sequence[dict[str, Any]]) -> SelectedFields:
    """Select the fields that the connector recommends, at any depth, and those that the table needs.

    `constraints` are validate's. Raises UserError if a field does not fit the table.
    """
    by_field: dict[str, list[tuple[str, str]]] = {}
    for each in constraints:
        constraint = each["constraint"]
        by_field.setdefault(each["field"], []).append((constraint["type"], constraint["reason"]))
    candidate = Candidate(collection, {}, delta_updates=True)
    keys = [next(each for each in collection.projections if each.ptr == ptr) for ptr in collection.key]
    values = []
    for projection in collection.projections:
        found = dict(by_field.get(projection.field, ()))
        is_needed = ConstraintType.FIELD_REQUIRED in found
        is_recommended = constrain_new_column(candidate, projection).type in _SELECTED
        if projection.ptr in ("", *collection.key) or not (is_needed or is_recommended):
            continue
        if ConstraintType.INCOMPATIBLE in found:
            raise UserError(
                f"field {projection.field!r} does not fit its column: {found[ConstraintType.INCOMPATIBLE]} To start "
                "with a new table, give another directory with --into."
            )
        if ConstraintType.FIELD_FORBIDDEN not in found:
            values.append(projection)
    return SelectedFields(tuple(keys), tuple(values))


def _read_value(document: Json, projection: Projection, now: datetime) -> Json:
    value = read_location(document, projection.ptr)
    if projection.ptr != UUID_PTR or projection.field != PUBLISHED_AT.field:
        return value
    return _published_at(value, now).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _published_at(uuid: Json, now: datetime) -> datetime:
    """Return when a document was published: documents of Flow have a UUID of version 1, which says it."""
    try:
        found = UUID(uuid) if isinstance(uuid, str) else None
    except ValueError:
        found = None
    return _UUID_EPOCH + timedelta(microseconds=found.time // 10) if found and found.version == 1 else now
