"""Plans what has to change so that a table fits its binding. The plan is a list of values, and apply performs it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, get_args

from pyiceberg.types import TimestamptzNanoType, TimestamptzType

from connector.config.values import ALWAYS_DROP, NameCase
from connector.evolution.altered_schema import find_usable_ids, name_kept_optional, plan_schema
from connector.evolution.arrangement_changes import plan_arrangement
from connector.evolution.arrangement_terms import ResolvedTerms, Source, resolve_terms
from connector.evolution.binding_settings import IdentifierFields
from connector.evolution.candidate import Candidate, CandidateField
from connector.evolution.column_fits import Evolution
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.field_config import (
    CONTROL_CHARACTERS,
    MAX_NAME,
    explain_reserved,
    fold_case,
    is_reserved,
    list_selected_fields,
    name_columns,
    parse_field_configs,
)
from connector.evolution.kept_columns import keep_columns
from connector.evolution.property_changes import DEFAULT_PROPERTIES, plan_properties
from connector.evolution.refusals import ChangeRules
from connector.evolution.table_change import (
    AddFirstSnapshot,
    Alteration,
    CreateNamespace,
    CreateTable,
    DropTable,
    RecordExistingRows,
    StartBackfill,
    TableChange,
)
from connector.evolution.target import NewColumn, Target
from connector.evolution.type_mapping import find_decimal_problem
from connector.host.errors import UserError
from connector.model.table_identifier import OWNER_PROPERTY, TableIdentifier
from protocol.flow import Collection, FieldSelection, Materialization, MaterializationBinding, add_collection
from protocol.protocol_error import ProtocolError

# Why a backfill cannot replace the rows in place.
OTHER_TYPES: Final = "its catalog refuses columns of other types in their places"
OTHER_NAMES: Final = "one of its partition fields has the name of a column that is new or gets another type"
OTHER_ARRANGEMENT: Final = "its partitions or its sort order need a column that it does not have yet"
LOWER_VERSION: Final = "its format version is lower than the one that the config names"
FLAG_IS_ON: Final = f"the feature flag {ALWAYS_DROP} is on"

NANOSECONDS_SINCE: Final = 3  # format version

# AWS Glue stores a column's doc as its comment, which has one line, and no control characters.
MAX_DOC: Final = 255  # characters


def plan_columns(
    collection: Collection,
    selection: FieldSelection,
    last: MaterializationBinding | None = None,
    field_name_case: NameCase = NameCase.PRESERVE,
    *,
    delta_updates: bool = True,
) -> tuple[NewColumn, ...]:
    """Plan the columns of the selected fields: keys, values, document. `last` is the binding as it was last applied.

    Raises UserError if a field cannot have its column.
    """
    projections = {projection.field for projection in collection.projections}
    fields = list_selected_fields(selection)
    for field in fields:
        if field not in projections:
            raise ProtocolError(f"field {field!r} is selected, but collection {collection.name} has no such projection")
    _check_names(collection, name_columns(selection))
    candidate = Candidate(
        collection,
        parse_field_configs(selection.field_config),
        delta_updates,
        group_by=selection.keys,
        last=last,
        field_name_case=field_name_case,
    )
    by_field = {each.projection.field: each for each in candidate.fields}
    return tuple(_make_column(by_field[field]) for field in fields)


def _check_names(collection: Collection, names: Mapping[str, str]) -> None:
    """Raise UserError unless all columns can be in one table."""
    spellings: dict[str, str] = {}
    for field, name in names.items():
        if not 1 <= len(name) <= MAX_NAME:
            raise UserError(
                f"Field {field!r} of collection {collection.name}: a column's name has 1 to {MAX_NAME} characters. "
                'Give it another with {"column": "…"} in its field config, or deselect the field.'
            )
        if (other := spellings.setdefault(fold_case(name), field)) != field:
            raise UserError(
                f"Fields {other!r} and {field!r} of collection {collection.name} have the same column name, or differ "
                "in upper and lower case only, and one table cannot have both. Deselect one of them, or give it "
                'another column with {"column": "…"} in its field config.'
            )


def plan_changes(found: CatalogEntry, target: Target) -> list[TableChange]:
    """Plan what has to be done, in order. The plan is empty if the table fits already.

    It can be repeated after a crash at any point: a table that records the target's owner is replaced already, or will
    be. Raises UserError if a change is refused.
    """
    table = found.table
    if found.refuses_identifier_fields or (table and table.refuses_identifier_fields):
        target = replace(target, has_identifier_fields=False)
    reserved = (column for column in target.columns if is_reserved(column.name, table.schema if table else None))
    _refuse(target, (f"field {column.field!r}: {explain_reserved(column.name)}" for column in reserved))
    if table is None:
        namespace = [] if found.namespace_exists else [CreateNamespace(target.path.namespace)]
        return [*namespace, _plan_creation(target)]
    if target.replaces and table.owner != target.owner:
        return _plan_backfill(table, target)
    target = _fit_version(target, table.format_version)
    alterations = _plan_alterations(table, target)
    if table.needs_snapshot:
        alterations.append(AddFirstSnapshot(target.path))
    if _begins_with_rows(table, target):
        return [*alterations, RecordExistingRows(target.path, replace(target.owner, has_older_rows=True))]
    return alterations


def _begins_with_rows(table: ExistingTable, target: Target) -> bool:
    """Whether the binding or its key begins with a table of the task that may have rows, and this is not recorded."""
    if not table.is_of(target.owner.materialization) or table.owner == replace(target.owner, has_older_rows=True):
        return False
    # A session takes a table whose owner is an earlier state key for one of before a backfill. A table of rejected rows
    # is not in a publication while its binding rejects none.
    has_other_owner = table.owner is not None and table.owner.state_key != target.owner.state_key
    is_back = target.is_new or target.is_for_rejected_rows
    # Of a binding that was created again, the runtime knows no stored keys; after another key, only those of that one.
    is_unknown = target.settings.identifier_fields is IdentifierFields.KEY and (target.is_new or target.has_other_key)
    has_unknown_keys = is_unknown and (table.has_rows or target.has_staged_rows)
    return target.keeps_rows or (is_back and has_other_owner) or has_unknown_keys


def _fit_version(target: Target, version: int) -> Target:
    """Return the target with columns of the types that the format version of its table allows."""
    if not target.keeps_nanoseconds or version < NANOSECONDS_SINCE:
        return target
    columns = (
        replace(column, type=TimestamptzNanoType()) if column.type == TimestamptzType() else column
        for column in target.columns
    )
    return replace(target, columns=tuple(columns))


def explain_refused_backfill(table: ExistingTable, path: TableIdentifier, materialization: str) -> str:
    """Say why a backfill of this materialization may not replace the table; "" if it may."""
    if table.owner is None or table.is_of(materialization):
        return ""
    return (
        f"The backfill needs to replace table {path}, but materialization {table.owner.materialization} "
        "created it, and its rows would be lost. Choose another table name for the binding, or drop the table "
        "yourself."
    )


def find_last_bindings(last: Materialization | None) -> dict[tuple[str, ...], MaterializationBinding]:
    """Find the binding that each resource path had before, with its collection. Disabled bindings count too."""
    if last is None:
        return {}
    bindings = (*last.inactive_bindings, *last.bindings)
    return {each.resource_path: add_collection(each, last.linked_collections) for each in bindings}


def _make_column(field: CandidateField) -> NewColumn:
    collection, projection = field.candidate.collection, field.projection
    if problem := find_decimal_problem(projection, field.config, field.has_key_location):
        raise UserError(f"collection {collection.name}: {problem}")
    if field.type is None:
        raise UserError(
            f"Field {projection.field!r} of collection {collection.name} is selected, but its schema allows only null, "
            "so there is no type for its column. Deselect it, or give the location a type."
        )
    inference = projection.inference
    texts = (CONTROL_CHARACTERS.sub(" ", text).split() for text in (inference.title, inference.description))
    doc = ": ".join(" ".join(words) for words in texts if words)
    return replace(field.make_column(field.type), doc=doc[:MAX_DOC])


def _plan_creation(target: Target) -> CreateTable:
    target = _fit_version(target, target.format_version)
    properties = {**target.table_properties, OWNER_PROPERTY: target.owner.encode()}
    sources = [Source(column.field, column.name, column.type) for column in target.columns]
    resolved = _resolve_terms(target, sources)
    _refuse(target, resolved.problems)
    terms = resolved.terms
    return CreateTable(
        target.path,
        target.columns,
        properties,
        {name: value for name, value in DEFAULT_PROPERTIES.items() if name not in properties},
        target.identifier,
        partition_by=terms.partition_by or (),
        sort_by=terms.sort_by or (),
        format_version=target.format_version,
    )


def _resolve_terms(target: Target, sources: Sequence[Source], existing: Iterable[str] = ()) -> ResolvedTerms:
    """Find the columns of the target's terms. `existing` are the names of columns that the table has already."""
    not_selected = "it is not selected. Select it, or remove the term."
    others = [Source(field, field, obstacle=not_selected) for field in sorted(target.other_fields)]
    names = {*existing, *(source.column for source in sources)}
    return resolve_terms(target.settings.arrangement, [*sources, *others], names)


def _refuse(target: Target, reasons: Iterable[str]) -> None:
    """Raise UserError with all reasons, if there are any."""
    if lines := [f"table {target.path}: {reason}" for reason in reasons]:
        raise UserError("\n".join(lines))


def _plan_backfill(table: ExistingTable, wanted: Target) -> list[TableChange]:
    if refusal := explain_refused_backfill(table, wanted.path, wanted.owner.materialization):
        raise UserError(refusal)
    if wanted.always_drops or table.format_version < wanted.format_version:
        return _plan_new_table(table, wanted, FLAG_IS_ON if wanted.always_drops else LOWER_VERSION)
    target = _fit_version(wanted, table.format_version)
    usable = find_usable_ids(table.schema, target.columns, target.identifier)
    names = {column.name for column in target.columns if column.name in table.partition_fields}
    if any(table.partition_fields[name] != usable.get(name) for name in names):
        return _plan_new_table(table, wanted, OTHER_NAMES)
    sources = [Source(column.field, column.name, column.type, usable.get(column.name)) for column in target.columns]
    resolved = _resolve_terms(target, sources)
    _refuse(target, resolved.problems)
    arranged = [*plan_arrangement(table.arrangement, resolved)]
    former = table.generation_of(target.owner.materialization)
    # A catalog knows no partition spec of columns that are not current yet.
    if arranged and (former.is_awaited or None in resolved.column_ids.values()):
        return _plan_new_table(table, wanted, OTHER_ARRANGEMENT)
    ids = _find_arranged_ids(table, resolved)
    if not _has_fixed_types(table, target, ids):
        return _plan_new_table(table, wanted, OTHER_TYPES)
    kept_optional = name_kept_optional(table.schema, target.columns, target.identifier, ids)
    properties = plan_properties(table.properties, target.table_properties)
    has_older_rows = table.owner is None and table.has_rows
    return [*arranged, StartBackfill(target, former, table.schema, kept_optional, tuple(properties), has_older_rows)]


def _plan_new_table(table: ExistingTable, target: Target, reason: str) -> list[TableChange]:
    return [DropTable(target.path, table.uuid, reason), _plan_creation(target)]


def _has_fixed_types(table: ExistingTable, target: Target, arranged: Iterable[int | None]) -> bool:
    """Whether all columns after the backfill have the types that the catalog demands in their places, also those that
    the task does not write, and that partition specs or the sort order need."""
    ids = {each for each in (*arranged, *table.partition_fields.values()) if each is not None}
    schema = plan_schema(table.schema, target.columns, target.identifier, ids, table.schema.highest_field_id)
    kept = keep_columns(schema, table.schema, ids).fields
    return all(column.field_type == fixed for column, fixed in zip(kept, table.fixed_types, strict=False))


def _find_arranged_ids(table: ExistingTable, resolved: ResolvedTerms) -> set[int | None]:
    """Find the columns of the partition spec and of the sort order after their changes."""
    terms, ids, current = resolved.terms, resolved.column_ids, table.arrangement
    partition: Iterable[int | None] = (
        (field.source_id for field in current.partition)
        if terms.partition_by is None
        else (ids[term.name] for term in terms.partition_by)
    )
    sort: Iterable[int | None] = (
        (field.source_id for field in current.sort)
        if terms.sort_by is None
        else (ids[each.term.name] for each in terms.sort_by)
    )
    return {*partition, *sort}


def _plan_alterations(table: ExistingTable, target: Target) -> list[TableChange]:
    if target.has_staged_rows and table.generation:  # apply commits them first, with which the table gets its columns
        table = replace(table, generation=replace(table.generation, schema_id=None))
    evolution = Evolution(ChangeRules(table, target.owner.materialization, target.settings, is_new=target.is_new))
    fits_by_field = evolution.fit_columns(target.columns)
    fits = [*fits_by_field.values(), *evolution.fit_unwritten_columns(fits_by_field.values())]
    sources = [fits_by_field[column.field].find_source(column) for column in target.columns]
    resolved = _resolve_terms(target, sources, (column.name for column in table.schema.fields))
    arranged = [] if resolved.problems else [*plan_arrangement(table.arrangement, resolved)]
    refusals = filter(None, (fit.refusal for fit in fits))
    not_arranged = evolution.rules.find_arrangement_problems(arranged, resolved.column_ids)
    _refuse(target, [*refusals, *resolved.problems, *not_arranged])
    order = get_args(Alteration)
    changes = (change for fit in fits for change in fit.changes)
    identifier = evolution.plan_identifier(target.columns, fits_by_field) if target.has_identifier_fields else []
    properties = plan_properties(table.properties, target.table_properties)
    return [*sorted(changes, key=lambda change: order.index(type(change))), *identifier, *arranged, *properties]
