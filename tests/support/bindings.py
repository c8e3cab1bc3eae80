"""Collections, bindings and configs for tests, with everything defaulted that a test does not care for."""

from pathlib import Path
from typing import Final

from connector.config.catalog import LOCAL
from connector.model.table_identifier import TableIdentifier
from protocol.flow import (
    Collection,
    Exists,
    FieldSelection,
    Inference,
    Json,
    Materialization,
    MaterializationBinding,
    Projection,
    StringInference,
)

MATERIALIZATION = "acme/warehouse"
PATH: Final = TableIdentifier("shop", "orders")  # of the table, unless a test names another
PLAIN = StringInference()


def projection(
    field: str,
    *types: str,
    ptr: str | None = None,
    exists: Exists = Exists.MUST,
    string: StringInference = PLAIN,
    default: Json = None,
    title: str = "",
    description: str = "",
) -> Projection:
    inference = Inference(types, exists, string, default=default, title=title, description=description)
    return Projection(f"/{field}" if ptr is None else ptr, field, inference=inference)


ID = projection("id", "integer")
DOCUMENT = projection("flow_document", "object", ptr="")


def collection(*projections: Projection, key: tuple[str, ...] = ("/id",), name: str = "acme/orders") -> Collection:
    return Collection(name, key, projections)


def local_config(warehouse: Path, **advanced: Json) -> Json:
    return {
        "namespace": "shop",
        "catalog": {"catalog_type": LOCAL, "warehouse": str(warehouse)},
        "advanced": advanced,
    }


def materialization_binding(
    bound: Collection,
    *values: str,
    document: str = "",
    field_config: dict[str, Json] | None = None,
    table: str = "orders",
    backfill: int = 0,
    properties: dict[str, str] | None = None,
    delta_updates: bool = True,
) -> MaterializationBinding:
    """A binding keyed by `id`, as the runtime makes it from what was validated."""
    return MaterializationBinding(
        resource_config={
            "table": table,
            "additional_table_properties": properties or {},
            "delta_updates": delta_updates,
        },
        resource_path=("shop", table),
        collection=bound,
        field_selection=FieldSelection(("id",), values, document, field_config or {}),
        delta_updates=delta_updates,
        backfill=backfill,
        state_key=f"shop%2F{table}.v{backfill}",
    )


def materialization(config: Json, *bindings: MaterializationBinding, name: str = MATERIALIZATION) -> Materialization:
    return Materialization(name, config=config, bindings=bindings)
