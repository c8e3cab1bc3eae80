"""The nouns of the protocol, as Flow's JSON has them.

The rules of proto3 JSON hold for all of them: a field at its default may be absent or null, 64-bit integers may be
strings, and unknown fields are ignored. `codec` applies these rules. The types mirror Flow's messages, so they also
have fields that the connector does not read.
"""

from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from protocol.protocol_error import ProtocolError

# What the protocol carries without interpreting it: configs, connector state, defaults.
Json: TypeAlias = Any


class Exists(StrEnum):
    """Whether a location exists in every document."""

    INVALID = "INVALID"  # proto3's zero value: nothing is known
    MUST = "MUST"
    MAY = "MAY"
    IMPLICIT = "IMPLICIT"
    CANNOT = "CANNOT"


class StringInference(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of the strings at a location."""

    format: str = ""
    content_type: str = ""
    content_encoding: str = ""
    max_length: int = 0


class NumericInference(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of the numbers at a location."""

    has_minimum: bool = False
    minimum: float = 0.0
    has_maximum: bool = False
    maximum: float = 0.0


class Inference(msgspec.Struct, frozen=True, rename="camel"):
    """What the collection's schema says of one location."""

    types: tuple[str, ...] = ()
    exists: Exists = Exists.INVALID
    string: StringInference = StringInference()
    numeric: NumericInference = NumericInference()
    default: Json = None
    title: str = ""
    description: str = ""
    secret: bool = False


class Projection(msgspec.Struct, frozen=True, rename="camel"):
    """A location of the document under a field's name; `ptr` "" is the root document."""

    ptr: str = ""
    field: str = ""
    explicit: bool = False
    is_partition_key: bool = False
    is_primary_key: bool = False
    inference: Inference = Inference()


class Collection(msgspec.Struct, frozen=True, rename="camel"):
    """A Flow collection: its key, as JSON pointers, and its projections."""

    name: str = ""
    key: tuple[str, ...] = ()
    projections: tuple[Projection, ...] = ()
    uuid_ptr: str = ""


class FieldSelection(msgspec.Struct, frozen=True, rename="camel"):
    """Which fields are materialized, in the order in which Store carries them; `document` "" is none."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    document: str = ""
    field_config: dict[str, Json] = {}


KEY_END: Final = 0xFFFFFFFF


class Range(msgspec.Struct, frozen=True, rename="camel"):
    """The part of the key space and of the r-clock space that a shard holds; both ends are inclusive."""

    key_begin: int = 0
    key_end: int = 0
    r_clock_begin: int = 0
    r_clock_end: int = 0

    @property
    def key_range(self) -> str:
        """`begin-end`, each 8 hexadecimal digits: the form in connector state and in table properties."""
        return f"{self.key_begin:08x}-{self.key_end:08x}"


WHOLE_RANGE: Final = Range(key_end=KEY_END, r_clock_end=KEY_END)


class MaterializationBinding(msgspec.Struct, frozen=True, rename="camel"):
    """One table of a materialization, as apply and open send it."""

    resource_config: Json = None
    resource_path: tuple[str, ...] = ()
    collection: Collection | None = None
    collection_index: int = 0
    field_selection: FieldSelection = FieldSelection()
    delta_updates: bool = False
    backfill: int = 0
    state_key: str = ""


class LabelValue(msgspec.Struct, frozen=True, rename="camel"):
    """One label of a shard."""

    name: str = ""
    value: str = ""


class LabelSet(msgspec.Struct, frozen=True, rename="camel"):
    """The labels of a shard."""

    labels: tuple[LabelValue, ...] = ()


class ShardTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """The template of a task's shards: only its labels matter here."""

    labels: LabelSet = LabelSet()


class Materialization(msgspec.Struct, frozen=True, rename="camel"):
    """A whole task: its endpoint config and its bindings, in the order that `binding` counts."""

    name: str = ""
    connector_type: str = ""
    config: Json = None
    bindings: tuple[MaterializationBinding, ...] = ()
    inactive_bindings: tuple[MaterializationBinding, ...] = ()
    linked_collections: tuple[Collection, ...] = ()
    shard_template: ShardTemplate = ShardTemplate()


class ConnectorState(msgspec.Struct, frozen=True, rename="camel"):
    """An RFC 7396 merge patch of the task's connector state. Never anything but a patch:
    `mergePatch: false` would replace other shards' state too."""

    updated: Json
    merge_patch: bool = True


class ConstraintType(StrEnum):
    """What a connector may say of a field."""

    FIELD_REQUIRED = "FIELD_REQUIRED"
    LOCATION_REQUIRED = "LOCATION_REQUIRED"
    LOCATION_RECOMMENDED = "LOCATION_RECOMMENDED"
    FIELD_OPTIONAL = "FIELD_OPTIONAL"
    FIELD_FORBIDDEN = "FIELD_FORBIDDEN"
    INCOMPATIBLE = "INCOMPATIBLE"


class Constraint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A constraint on one field, and the reason that its user reads."""

    type: ConstraintType
    reason: str
    folded_field: str = ""


class ProjectionConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """One of a field's constraints; a field may have several."""

    field: str
    constraint: Constraint


class ValidateBinding(msgspec.Struct, frozen=True, rename="camel"):
    """One table of a materialization, as validate sends it."""

    resource_config: Json = None
    collection: Collection | None = None
    collection_index: int = 0
    field_config: dict[str, Json] = {}
    backfill: int = 0
    group_by: tuple[str, ...] = ()


def collection_of(binding: MaterializationBinding | ValidateBinding, linked: tuple[Collection, ...]) -> Collection:
    """A binding's collection: in the binding itself, or (newer runtimes) an index into the linked ones."""
    if binding.collection is not None:
        return binding.collection
    if not 0 <= binding.collection_index < len(linked):
        raise ProtocolError(
            f"a binding has neither a collection nor, at {binding.collection_index}, one of the {len(linked)} "
            "linkedCollections"
        )
    return linked[binding.collection_index]
