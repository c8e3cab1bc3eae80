"""Selects a binding's fields as Flow does: from the constraints, and the rules in the binding's `fields`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

import msgspec

from connector.host.errors import UserError
from protocol.flow import Collection, Constraint, ConstraintType, FieldSelection, Json, Projection

OBJECTS: Final = ({"object"}, {"object", "null"})
CORE_FIELDS: Final = ("flow_published_at", "_meta/op")
UNLIMITED: Final = 1 << 32
REFUSING: Final = (ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE)


class FieldRules(msgspec.Struct, frozen=True, rename="camel"):
    """The `fields` of a binding in a Flow specification."""

    recommended: bool | int = True
    require: dict[str, Json] = {}
    include: dict[str, Json] = {}  # the older name of `require`
    exclude: tuple[str, ...] = ()
    group_by: tuple[str, ...] = ()

    @property
    def configs(self) -> dict[str, Json]:
        """The field configs, by required field."""
        return self.include | self.require

    @property
    def depth(self) -> int:
        """The depth of the locations that are wanted; 0 for none."""
        return self.recommended if type(self.recommended) is int else UNLIMITED if self.recommended else 0


class Reason(IntEnum):
    """Why a field is selected. A stronger reason has a higher number."""

    NONE = 0
    DEPTH = 1
    METADATA = 2
    LOCATION_REQUIRED = 3
    EXPLICIT = 4
    PARTITION_KEY = 5
    FIELD_REQUIRED = 6
    USER = 7
    KEY = 8


def select_fields(collection: Collection, constraints: Mapping[str, Constraint], rules: FieldRules) -> FieldSelection:
    """Return the selected fields. Raises UserError if a field must be selected and cannot be."""
    selector = _Selector(collection, constraints, rules)
    keys = selector.keys
    reasons = {each.field: selector.find_reason(each) for each in collection.projections}
    if unknown := [field for field in (*keys, *rules.configs) if field not in reasons]:
        raise UserError(f"collection {collection.name} has no field {unknown[0]!r}. Correct the binding's `fields`.")
    selected: list[Projection] = []
    # The strongest reason first: of two fields with one location, it decides.
    for projection in sorted(collection.projections, key=lambda each: (-reasons[each.field], each.field)):
        reason = reasons[projection.field]
        if reason and selector.is_wanted(projection, reason, selected) and selector.is_allowed(projection, reason):
            selected.append(projection)
    fields = {each.field: each.ptr for each in sorted(selected, key=lambda each: each.field)}
    return FieldSelection(
        keys,
        tuple(field for field, ptr in fields.items() if field not in keys and ptr),
        next((field for field, ptr in fields.items() if not ptr), ""),
        rules.configs,
    )


@dataclass(frozen=True)
class _Selector:
    """Decides about each field of a binding."""

    collection: Collection
    constraints: Mapping[str, Constraint]  # by field
    rules: FieldRules

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The fields of the key."""
        return self.rules.group_by or tuple(map(self._find_key_field, self.collection.key))

    def _find_key_field(self, ptr: str) -> str:
        fields = [each.field for each in self.collection.projections if each.ptr == ptr]
        return ptr[1:] if ptr[1:] in fields else next(iter(fields), ptr[1:])

    def find_reason(self, projection: Projection) -> Reason:
        """Find the strongest reason to select the field."""
        constraint = self.constraints.get(projection.field)
        type_ = constraint.type if constraint else None
        wants_any = self.rules.depth > 0
        reasons = {
            Reason.NONE: True,
            Reason.KEY: projection.field in self.keys,
            Reason.USER: projection.field in self.rules.configs,
            Reason.FIELD_REQUIRED: type_ is ConstraintType.FIELD_REQUIRED,
            Reason.LOCATION_REQUIRED: type_ is ConstraintType.LOCATION_REQUIRED,
            Reason.PARTITION_KEY: projection.is_partition_key,
            Reason.EXPLICIT: wants_any and projection.explicit,
            Reason.METADATA: wants_any and projection.field in CORE_FIELDS,
            Reason.DEPTH: wants_any and self._is_deep_enough(projection),
        }
        return max(reason for reason, is_given in reasons.items() if is_given)

    def _is_deep_enough(self, projection: Projection) -> bool:
        """Whether the location is at the wanted depth, or above it and without a location within it."""
        depth = projection.ptr.count("/")
        if projection.ptr.startswith("/_meta") or depth > self.rules.depth:
            return False
        if depth == self.rules.depth or {*projection.inference.types} not in OBJECTS:
            return True
        has_inner = any(each.ptr.startswith(f"{projection.ptr}/") for each in self.collection.projections)
        return not has_inner and self.rules.recommended is not True

    def is_wanted(self, projection: Projection, reason: Reason, selected: list[Projection]) -> bool:
        """Whether neither the user's rules nor a field that is already selected make the field superfluous."""
        if reason >= Reason.FIELD_REQUIRED:
            return True
        if projection.field in self.rules.exclude or any(each.ptr == projection.ptr for each in selected):
            return False
        if reason > Reason.DEPTH:
            return True
        around = [f"/{field}" for field in self.rules.exclude] + [each.ptr for each in selected if each.ptr]
        return not any(projection.ptr.startswith(f"{ptr}/") for ptr in around)

    def is_allowed(self, projection: Projection, reason: Reason) -> bool:
        """Whether the constraint of the field allows it. Raises UserError if the field must be selected."""
        constraint = self.constraints.get(projection.field)
        if constraint is None or constraint.type not in REFUSING:
            return constraint is not None
        if reason >= Reason.FIELD_REQUIRED or constraint.type is ConstraintType.INCOMPATIBLE:
            raise UserError(
                f"field {projection.field!r} of collection {self.collection.name} cannot be materialized: "
                f"{constraint.reason}"
            )
        return False
