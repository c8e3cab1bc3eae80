"""The columns of earlier rows that stay in a backfill, because the partition specs or the sort order need them."""

from collections.abc import Collection

from pyiceberg.schema import Schema, index_by_id

from connector.evolution.field_config import fold_case


def keep_columns(schema: Schema, before: Schema, pinned: Collection[int]) -> Schema:
    """Return the schema of a backfill with the earlier columns that have `pinned` ids, or columns within them with such
    ids. They stay for what depends on them, if necessary under another name."""
    fields = [*schema.fields]
    held = {field.field_id for field in fields}
    taken = {fold_case(field.name) for field in fields}
    for field in before.fields:
        if field.field_id not in held and not index_by_id(Schema(field)).keys().isdisjoint(pinned):
            is_taken = fold_case(field.name) in taken
            name = f"{field.name}_{field.field_id}_before_backfill" if is_taken else field.name
            fields.append(field.model_copy(update={"name": name, "required": False}))
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
