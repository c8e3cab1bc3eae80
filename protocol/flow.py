"""The values inside requests and responses, with the names of Flow's JSON.

The rules of proto3 JSON apply: a field with its default value may be absent or null, 64-bit integers may be strings,
and unknown fields are ignored. `codec` applies these rules. A type has the protocol's fields that a materialization may
need, including some that this connector does not read. The other fields of the protocol count as unknown.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from protocol.protocol_error import ProtocolError

# JSON that the protocol does not interpret: configs, the connector state, default values.
Json: TypeAlias = Any


class Exists(StrEnum):
    """Whether documents have a value at a location."""

    INVALID = "INVALID"  # the default value of proto3: unknown
    MUST = "MUST"
    MAY = "MAY"
    IMPLICIT = "IMPLICIT"
    CANNOT = "CANNOT"


class StringInference(msgspec.Struct, frozen=True, rename="camel"):
    """The form of the strings at a location, as far as it is known."""

    format: str = ""
    content_type: str = ""
    content_encoding: str = ""
    max_length: int = 0


class NumericInference(msgspec.Struct, frozen=True, rename="camel"):
    """The bounds of the numbers at a location, as far as they are known."""

    has_minimum: bool = False
    minimum: float = 0.0
    has_maximum: bool = False
    maximum: float = 0.0


class Inference(msgspec.Struct, frozen=True, rename="camel"):
    """The types and other facts of one location, from the collection's schema."""

    types: tuple[str, ...] = ()
    exists: Exists = Exists.INVALID
    string: StringInference = StringInference()
    numeric: NumericInference = NumericInference()
    default: Json = None
    title: str = ""
    description: str = ""
    secret: bool = False


class Projection(msgspec.Struct, frozen=True, rename="camel"):
    """A location within documents, and the name of its field. A `ptr` of "" is the whole document."""

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
    """The fields that are materialized, in the order of their values in Store. A `document` of "" means none."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    document: str = ""
    field_config: dict[str, Json] = {}


KEY_END: Final = 0xFFFFFFFF


class Range(msgspec.Struct, frozen=True, rename="camel"):
    """The part of all keys and of all r-clocks that a shard handles. Both ends are inclusive."""

    key_begin: int = 0
    key_end: int = 0
    r_clock_begin: int = 0
    r_clock_end: int = 0

    @property
    def key_range(self) -> str:
        """`begin-end`, each with 8 hexadecimal digits, as in the connector state and in table properties."""
        return f"{self.key_begin:08x}-{self.key_end:08x}"


WHOLE_RANGE: Final = Range(key_end=KEY_END, r_clock_end=KEY_END)


class MaterializationBinding(msgspec.Struct, frozen=True, rename="camel"):
    """One binding of a task, in apply and open."""

    resource_config: Json = None
    resource_path: tuple[str, ...] = ()
    collection: Collection | None = None
    collection_index: int = 0
    field_selection: FieldSelection = FieldSelection()
    delta_updates: bool = False
    backfill: int = 0
    state_key: str = ""

    @property
    def table(self) -> tuple[str, str]:
        """The namespace and the name of the table. Raises ProtocolError if the resource path has other elements."""
        match self.resource_path:
            case (namespace, name) if namespace.strip() and name.strip():
                return namespace, name
            case _:
                raise ProtocolError(
                    f"the resourcePath of a binding is {list(self.resource_path)}: expected two elements, the "
                    "namespace and the name of the table, and neither of them blank"
                )


class LabelValue(msgspec.Struct, frozen=True, rename="camel"):
    """One label of a shard."""

    name: str = ""
    value: str = ""


class LabelSet(msgspec.Struct, frozen=True, rename="camel"):
    """The labels of a shard."""

    labels: tuple[LabelValue, ...] = ()


V2_LABEL: Final = "estuary.dev/flag/enable-runtime-v2"


class ShardTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """The template of a task's shards. The connector needs only its labels."""

    labels: LabelSet = LabelSet()


class Materialization(msgspec.Struct, frozen=True, rename="camel"):
    """A task: its endpoint config and its bindings. `binding` in other messages is an index into `bindings`."""

    name: str = ""
    connector_type: str = ""
    config: Json = None
    bindings: tuple[MaterializationBinding, ...] = ()
    inactive_bindings: tuple[MaterializationBinding, ...] = ()
    linked_collections: tuple[Collection, ...] = ()
    shard_template: ShardTemplate = ShardTemplate()
    sync_schedule: Json = None

    @property
    def runs_on_v2(self) -> bool:
        """Whether Flow's V2 runtime runs the task. It keeps one state for all shards."""
        return any(label.name == V2_LABEL and label.value == "true" for label in self.shard_template.labels.labels)

    @property
    def is_scheduled(self) -> bool:
        """Whether the runtime itself commits by the schedule of the task: V1 has no schedules."""
        return bool(self.sync_schedule) and self.runs_on_v2


class ConnectorState(msgspec.Struct, frozen=True, rename="camel"):
    """A merge patch (RFC 7396) of the connector state. It is always a patch, because `mergePatch: false` would replace
    the state of other shards too."""

    updated: Json
    merge_patch: bool = True


class ConstraintType(StrEnum):
    """The kinds of constraints."""

    FIELD_REQUIRED = "FIELD_REQUIRED"
    LOCATION_REQUIRED = "LOCATION_REQUIRED"
    LOCATION_RECOMMENDED = "LOCATION_RECOMMENDED"
    FIELD_OPTIONAL = "FIELD_OPTIONAL"
    FIELD_FORBIDDEN = "FIELD_FORBIDDEN"
    INCOMPATIBLE = "INCOMPATIBLE"


class Constraint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A constraint of one field, and the reason that the user reads."""

    type: ConstraintType
    reason: str
    folded_field: str = ""


class ProjectionConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """One constraint of a field. A field may have several."""

    field: str
    constraint: Constraint


class ValidateBinding(msgspec.Struct, frozen=True, rename="camel"):
    """One binding of a task, in validate."""

    resource_config: Json = None
    collection: Collection | None = None
    collection_index: int = 0
    field_config: dict[str, Json] = {}
    backfill: int = 0
    group_by: tuple[str, ...] = ()


@lru_cache(1024)
def split_pointer(pointer: str) -> tuple[str, ...]:
    """Return the tokens of a JSON pointer, such as `Projection.ptr`, without escapes."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def find_collection(binding: MaterializationBinding | ValidateBinding, linked: tuple[Collection, ...]) -> Collection:
    """Return a binding's collection. Newer runtimes send an index into the linked collections instead.

    Raises ProtocolError if the binding has neither.
    """
    if binding.collection is not None:
        return binding.collection
    if not 0 <= binding.collection_index < len(linked):
        raise ProtocolError(
            f"a binding has no collection, and its collectionIndex {binding.collection_index} is none of the "
            f"{len(linked)} linkedCollections"
        )
    return linked[binding.collection_index]


def add_collection(binding: MaterializationBinding, linked: tuple[Collection, ...]) -> MaterializationBinding:
    """Return a binding with its collection, also if it has only an index; without one if it has neither."""
    if binding.collection is None and 0 <= binding.collection_index < len(linked):
        return msgspec.structs.replace(binding, collection=linked[binding.collection_index])
    return binding
