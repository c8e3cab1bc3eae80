"""A demo's binding has the fields that the connector recommends, whether the table exists or not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from connector.cli.document_shape import infer_document_shape
from connector.cli.field_selection import SelectedFields, select_fields
from connector.cli.projections import make_collection
from connector.host.errors import UserError
from fixtures.collection import meta
from protocol.flow import Json
from support.snapshots import check_text

SNAPSHOTS: Final = Path(__file__).parents[1] / "snapshots" / "cli_errors.json"
NOW: Final = datetime(2026, 11, 22, 8, tzinfo=UTC)
DOCUMENT: Final = {"id": 1, "customer": {"city": "Lima"}, "tags": [1], "nothing": None, "key": {"part": "a"}}


def select(*constraints: tuple[str, str], document: Json = DOCUMENT) -> SelectedFields:
    """Select with these constraints: each is a field and a type."""
    collection = make_collection("demo/orders", ["/id", "/key/part"], infer_document_shape([document]), ())
    answer: list[dict[str, Any]] = [
        {"field": field, "constraint": {"type": type_, "reason": f"The reason of {type_}."}}
        for field, type_ in constraints
    ]
    return select_fields(collection, answer)


def test_recommended_fields_of_any_depth_are_selected_with_the_key_and_the_root_document() -> None:
    selection = select().selection
    assert selection.keys == ("id", "key/part")
    assert selection.values == ("customer/city", "flow_published_at", "tags")
    assert selection.document == "flow_document"


def test_a_field_with_a_column_stays_selected_and_a_field_that_the_table_needs_is_selected() -> None:
    selection = select(("customer/city", "FIELD_OPTIONAL"), ("customer", "FIELD_REQUIRED")).selection
    assert selection.values == ("customer", "customer/city", "flow_published_at", "tags")


def test_a_forbidden_field_is_not_selected() -> None:
    assert select(("tags", "FIELD_FORBIDDEN")).selection.values == ("customer/city", "flow_published_at")


def test_a_field_that_does_not_fit_its_column_is_one_error() -> None:
    with pytest.raises(UserError) as error:
        select(("tags", "FIELD_REQUIRED"), ("tags", "INCOMPATIBLE"))
    check_text(SNAPSHOTS, "demo: a field that does not fit its column", str(error.value), {})


@pytest.mark.parametrize(
    ("metadata", "published"),
    [
        (None, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": "not a UUID"}, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": 7}, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}, "2026-11-22T08:00:00.000000Z"),
        (meta(datetime(2025, 11, 2, 8, 59, 29, 644134, tzinfo=UTC)), "2025-11-02T08:59:29.644134Z"),
    ],
)
def test_a_document_was_published_when_its_uuid_says_so_and_otherwise_now(metadata: Json, published: str) -> None:
    document = {**DOCUMENT, "_meta": metadata}
    values = dict(zip(select().selection.values, select().read_values(document, NOW), strict=True))
    assert values == {"customer/city": "Lima", "flow_published_at": published, "tags": [1]}
