"""PyIceberg derives the same Avro readers and writers from the same schemas for every file; here it remembers them.

They are most of a small file's cost, and pure functions: what is written and read is the same. Nor does it copy what
nobody changes in place.
"""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg import manifest
from pyiceberg.avro import file as avro
from pyiceberg.avro import resolver
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.utils.schema_conversion import AvroSchemaConversion


def remember(patch: pytest.MonkeyPatch) -> None:
    copy = TableMetadataV2.model_copy

    def shallow_copy(metadata: TableMetadataV2, **options: Any) -> TableMetadataV2:
        return copy(metadata, update=options.get("update"))

    patch.setattr(TableMetadataV2, "model_copy", shallow_copy)
    schemas = _by(lambda text: text, lambda text: AvroSchemaConversion().avro_to_iceberg(json.loads(text)))
    conversions = _by(_identities, lambda schema, name: AvroSchemaConversion().iceberg_to_avro(schema, name))

    class Conversion:
        def iceberg_to_avro(self, schema: Schema, schema_name: str) -> Any:
            return conversions(schema, schema_name)

    patch.setattr(avro.AvroFileHeader, "get_schema", lambda header: schemas(header.meta["avro.schema"]))
    patch.setattr(avro, "AvroSchemaConversion", Conversion)
    patch.setattr(avro, "json", SimpleNamespace(loads=json.loads, dumps=_by(_identities, json.dumps)))
    patch.setattr(avro, "construct_reader", _by(_schema_and_types, resolver.construct_reader))
    patch.setattr(avro, "construct_writer", _by(_identities, resolver.construct_writer))
    patch.setattr(avro, "resolve_writer", _by(_identities, resolver.resolve_writer))
    patch.setattr(avro, "resolve_reader", _by(_schemas_and_types, resolver.resolve_reader))
    patch.setattr(manifest, "data_file_with_partition", _by(_values, manifest.data_file_with_partition))
    patch.setattr(
        manifest,
        "manifest_entry_schema_with_data_file",
        _by(_identities, manifest.manifest_entry_schema_with_data_file),
    )


def _by(key_of: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def remembered(*arguments: Any, **named: Any) -> Any:
        key = key_of(*arguments, *named.values())
        if key not in known:
            # The arguments are kept too: another object must not get the identity of one that is gone.
            known[key] = arguments, named, function(*arguments, **named)
        return known[key][-1]

    return remembered


def _identities(*arguments: Any) -> Any:
    return tuple(argument if isinstance(argument, int | str) else id(argument) for argument in arguments)


def _values(*arguments: Any) -> Any:
    return arguments


def _schema_and_types(file: Any, types: dict[int, Any]) -> Any:
    return id(file), tuple(types.items())


def _schemas_and_types(file: Any, read: Any, types: dict[int, Any], enums: dict[int, Any]) -> Any:
    return id(file), id(read), tuple(types.items()), tuple(enums.items())
