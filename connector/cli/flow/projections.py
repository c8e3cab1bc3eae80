"""Lists the projections that Flow gives a collection: one for each location that its JSON schema names, and its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from connector.cli.flow.shapes import Shape
from protocol.flow import Collection, Exists, Inference, Projection, StringInference

ROOT_FIELD: Final = "flow_document"
UUID_PTR: Final = "/_meta/uuid"
DATE_TIME_OF_UUID: Final = "/_meta/uuid/date-time"  # in the projections of a catalog file; documents do not have it
TRUNCATED_PTR: Final = "/_meta/flow_truncated"

PUBLISHED_AT: Final = Projection(
    UUID_PTR,
    "flow_published_at",
    inference=Inference(
        types=("string",),
        exists=Exists.MUST,
        string=StringInference(format="date-time", content_encoding="uuid"),
        title="Flow Publication Time",
        description="Flow publication date-time of this document",
    ),
)
TRUNCATED: Final = Projection(
    TRUNCATED_PTR,
    TRUNCATED_PTR[1:],
    inference=Inference(
        types=("boolean",),
        exists=Exists.MUST,
        title="Flow truncation indicator",
        description="Whether a value of the row was truncated because the destination limits its size.",
    ),
)


@dataclass(frozen=True)
class ExplicitProjection:
    """A projection that a catalog file names."""

    field: str
    ptr: str
    is_partition_key: bool = False


def make_collection(name: str, key: Sequence[str], shape: Shape, explicit: Sequence[ExplicitProjection]) -> Collection:
    """Return the collection as Flow sends it to a connector, with its projections sorted by field."""
    by_field: dict[str, Projection] = {}
    for projection in _list_projections(key, shape, explicit):
        by_field.setdefault(projection.field, projection)
    return Collection(name, tuple(key), tuple(by_field[field] for field in sorted(by_field)), UUID_PTR)


def _list_projections(key: Sequence[str], shape: Shape, explicit: Sequence[ExplicitProjection]) -> Iterator[Projection]:
    """Yield the projections. Of several with one field, the first is valid."""
    for each in explicit:
        if each.ptr == DATE_TIME_OF_UUID and not each.is_partition_key:
            yield msgspec.structs.replace(PUBLISHED_AT, field=each.field, explicit=True)
        else:
            yield Projection(
                each.ptr, each.field, True, each.is_partition_key, each.ptr in key, _infer(*shape.locate(each.ptr))
            )
    if all(each.ptr != "" for each in explicit):
        yield Projection("", ROOT_FIELD, inference=_infer(*shape.locate("")))
    if all(each.ptr != DATE_TIME_OF_UUID for each in explicit):
        yield PUBLISHED_AT
    yield TRUNCATED
    for ptr in key:
        yield Projection(ptr, ptr[1:], is_primary_key=True, inference=_infer(*shape.locate(ptr)))
    for ptr, inner, exists in shape.list_locations():
        if ptr and ptr[1:] != ROOT_FIELD and not ptr.endswith("/"):
            yield Projection(ptr, ptr[1:], inference=_infer(inner, exists))


def _infer(shape: Shape, exists: Exists) -> Inference:
    return Inference(
        shape.types,
        exists,
        shape.string if "string" in shape.types else StringInference(),
        shape.numeric,
        shape.default,
        shape.title,
        shape.description,
        shape.secret,
    )
