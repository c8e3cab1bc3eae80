"""What a table's properties say: whether files and metadata can be written, which generation the rows have, which
columns have the key, which column has taken the place of which, which names files without field ids have for columns,
and which statistics manifests have."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from pyiceberg.table import Table, TableProperties, name_mapping
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import TOTAL_RECORDS
from pyiceberg.types import BinaryType, StringType
from pyiceberg.utils.properties import property_as_bool

from connector.encoding.parquet.file_options import find_locations, refuse_code
from connector.host.errors import BACKFILL, UserError
from connector.iceberg.metadata.table_arrangement import keep_sources
from connector.model.properties import demand, read_number
from connector.model.table_identifier import Generation, TableIdentifier
from connector.storage.store_kinds import check_store, store_of

if TYPE_CHECKING:
    from connector.encoding.values.name_mapping import NameMapping
    from connector.evolution.altered_schema import ConvertedColumn

ENCRYPTION: Final = "encryption.key-id"  # PyIceberg has no name for it
DIRECTORIES: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
SWITCHES: Final = (TableProperties.OBJECT_STORE_ENABLED, TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS)
PREVIOUS_VERSIONS: Final = TableProperties.METADATA_PREVIOUS_VERSIONS_MAX
NAME_MAPPING: Final = TableProperties.DEFAULT_NAME_MAPPING
CONVERTED_PREFIX: Final = "flow.converted."
KEY_COLUMNS_PREFIX: Final = "flow.key."
STATISTICS: Final = "write.metadata.metrics.default"
STATISTICS_OF_COLUMN: Final = "write.metadata.metrics.column."
MOST_WITH_STATISTICS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MOST_WITH_STATISTICS: Final = 100  # columns, as in Iceberg
_NOTHING, _COUNTS, _COUNTS_AND_BOUNDS, _WHOLE_BOUNDS = range(4)
CORRECT_TABLE: Final = "Correct it in the table (in Spark: ALTER TABLE … SET or UNSET TBLPROPERTIES …)."
_OTHER_TABLE: Final = "Give the binding another table, which is not encrypted: the files of this one stay encrypted."
_IN_A_STORE: Final = re.compile(
    r"(?:file:|(?:s3[an]?|oss|gs|gcs|abfss?|wasbs?|hdfs|viewfs)://[^/\[\]]*)?/[^\0]*", re.DOTALL | re.IGNORECASE
)
_LOCATION: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/[^#?]*", re.DOTALL)


def find_generation(table: Table, materialization: str) -> Generation:
    """Read the generation that a task's rows of the table belong to. UserError if its property was changed by hand."""
    with name_table_in_errors(table):
        return Generation.of(str(table.metadata.table_uuid), table.properties, materialization)


def awaits_backfill(table: Table) -> bool:
    """Whether the next commit of the table's task replaces all rows. UserError if the property was changed by hand."""
    with name_table_in_errors(table):
        generation = Generation.recorded(table.properties)
    return generation is not None and generation.is_awaited


def restrict_to_generation(table: Table, generation: Generation) -> Table:
    """Return the table as the task of this generation has it: with its columns, and without earlier rows.

    The metadata is changed in memory only. A commit asserts the table as it was loaded. The schema keeps its id even if
    it has got more columns, which the partition spec or the sort order needs by now.
    """
    if generation.schema_id is None:
        return table
    if generation.schema_id not in table.schemas():
        raise UserError(
            f"Table {TableIdentifier.of(table)}: another program has removed schema {generation.schema_id}, which the "
            f"backfill has added. Once more, {BACKFILL}."
        )
    references = {name: ref for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    awaited = keep_sources(table, table.schemas()[generation.schema_id])
    schemas = [awaited if each.schema_id == awaited.schema_id else each for each in table.metadata.schemas]
    without_rows = {"current_snapshot_id": None, "refs": references}
    of_generation = {"schemas": schemas, "current_schema_id": generation.schema_id} | without_rows
    metadata = table.metadata.model_copy(update=of_generation)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def has_rows(table: Table) -> bool:
    """Whether the table has rows. Its snapshot may be empty, as the first one in Nessie is."""
    snapshot = table.current_snapshot()
    return snapshot is not None and (snapshot.summary is None or snapshot.summary[TOTAL_RECORDS] != "0")


def record_conversions(converted: "Iterable[ConvertedColumn]") -> dict[str, str]:
    """Return the table properties that record the conversions."""
    return {f"{CONVERTED_PREFIX}{column.old.field_id}": str(column.new.field_id) for column in converted}


def is_converted(table: Table, column_id: int) -> bool:
    """Whether another column has taken the place of this one, with its values."""
    return f"{CONVERTED_PREFIX}{column_id}" in table.properties


def find_newest_column(table: Table, column_id: int) -> int:
    """Return the id of the column that has a column's values now. UserError if the property was changed by hand."""
    successors = read_successors(table)
    while column_id in successors:
        column_id = successors[column_id]
    return column_id


def read_successors(table: Table) -> dict[int, int]:
    """Return the ids of converted columns, each with the id of the column that has taken its place. UserError if the
    property was changed by hand."""
    with name_table_in_errors(table):
        return dict(_read_successors(table.properties))


def read_name_mapping(table: Table) -> "NameMapping":
    """Return the names that a table's columns have in files without field ids. UserError if the property is invalid."""
    # Imported here: it imports Arrow, which Open does without.
    from connector.encoding.values.name_mapping import MappedField

    def map_fields(fields: Iterable[name_mapping.MappedField]) -> "NameMapping":
        return tuple(MappedField(each.field_id, frozenset(each.names), map_fields(each.fields)) for each in fields)

    with name_table_in_errors(table):
        return map_fields(_parse_name_mapping(table.properties))


def _parse_name_mapping(properties: Mapping[str, str]) -> Iterable[name_mapping.MappedField]:
    if not (text := properties.get(NAME_MAPPING)):
        return ()
    with demand(properties, NAME_MAPPING, "must be a name mapping, the JSON of Iceberg's specification"):
        return name_mapping.parse_mapping_from_json(text)


def _read_successors(properties: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    for name, value in properties.items():
        if name.startswith(CONVERTED_PREFIX):
            try:
                before, after = int(name.removeprefix(CONVERTED_PREFIX)), int(value)
            except ValueError as error:
                raise ValueError(f"{name} is {value!r}; it must name one column's id by another's") from error
            if after <= before:  # it could lead back to the same column
                raise ValueError(f"{name} is {value!r}; it must name a newer column, whose id is higher")
            yield before, after


class _FixedPropertyError(ValueError):
    """A table property that it does not help to change. An encrypted table stays encrypted without it."""


def check_committable(table: Table) -> None:
    """Raise UserError if no metadata can be written with the table's properties."""
    with name_table_in_errors(table):
        check_properties(table.properties, table.location())


def check_properties(properties: Mapping[str, str], location: str | None) -> None:
    """Raise ValueError if no metadata can be written with these properties. `location` is the table's."""
    _check_locations(properties, location)
    # Files that are not encrypted would lie among those that are. PyIceberg also drops the keys from the metadata: no
    # reader could decrypt the others any more.
    if ENCRYPTION in properties:
        raise _FixedPropertyError(f"{ENCRYPTION} is set, but the connector neither reads nor writes encrypted files")
    read_number(properties, PREVIOUS_VERSIONS, 0)
    _parse_name_mapping(properties)


def _check_locations(properties: Mapping[str, str], location: str | None) -> None:
    """Raise ValueError if PyIceberg cannot name files with these properties, or would run code to do so."""
    refuse_code(properties)
    for name in DIRECTORIES:
        if (path := properties.get(name)) and not is_location(path):
            raise ValueError(
                f"{name} is {path!r}; it must be an absolute location without # and ?, such as s3://bucket/directory"
            )
        if path and not _IN_A_STORE.fullmatch(path):
            raise ValueError(
                f"{name} is {path!r}; it must be a location in a store that PyIceberg knows: s3, gs, abfss, hdfs or "
                "file, such as s3://bucket/directory"
            )
        # Otherwise who may change a table in a bucket would choose files of this machine.
        if path and location and store_of(path)[0] != (kind := store_of(location)[0]):
            raise ValueError(
                f"{name} is {path!r}; it must be in a store of the same kind as the table's location ({kind})"
            )
    for name in SWITCHES:
        read_switch(properties, name, False)


def locations_of(table: Table) -> LocationProvider:
    """Return where a table's files go. UserError if that is no directory, or if its properties name code."""
    check_location(table)
    with name_table_in_errors(table):
        _check_locations(table.properties, table.location())
        return find_locations(table.location(), table.properties)


def check_location(table: Table) -> None:
    """Raise UserError if no files can be written below the table's location."""
    check_store(table)
    if not is_location(table.location()):
        raise UserError(
            f"Table {TableIdentifier.of(table)} is at {table.location()}. The connector only writes to absolute "
            "locations without # and ?. Choose another table name, or drop the table and create it at another location."
        )


def is_location(text: str) -> bool:
    """Whether files can be written below a location. PyIceberg would write below the current directory of the process
    if it is not absolute. It ignores what comes after # or ?, so all files of the table would replace each other."""
    return _LOCATION.fullmatch(text) is not None


class KeyColumns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns that have the key in the rows of one generation."""

    generation: str  # its UUID
    columns: dict[str, int]  # field ids, by where documents have the part of the key
    # The parts that may have one value in the column for different keys. None: an older image, which did not know them.
    inexact: tuple[str, ...] | None = None


class MissingStatistics(NamedTuple):
    """The ids of columns whose bounds manifests do not have, of those among them whose counts they do not have, and of
    texts whose bounds they only have if these are whole values."""

    bounds: Collection[int] = frozenset()
    counts: Collection[int] = frozenset()
    cut_bounds: Collection[int] = frozenset()


ALL_STATISTICS: Final = MissingStatistics()


def find_missing_statistics(table: Table, keys: Collection[int] = ()) -> MissingStatistics:
    """Return whose statistics the table's properties leave out. An invalid value counts as one that is not set. Both as
    in Iceberg.

    Identifier fields, the key columns of all tasks, and the `keys` of a first commit, which are column ids, have all
    statistics: Loads skip files by their bounds.
    """
    properties, schema = table.properties, table.schema()
    try:
        most = read_number(properties, MOST_WITH_STATISTICS, _MOST_WITH_STATISTICS, least=0)
    except ValueError:
        most = _MOST_WITH_STATISTICS
    are_chosen = any(name == STATISTICS or name.startswith(STATISTICS_OF_COLUMN) for name in properties)
    if len(schema.fields) <= most and not are_chosen:
        return ALL_STATISTICS
    order = table.metadata.sort_order_by_id(table.metadata.default_sort_order_id)
    sorted_by = {field.source_id for field in order.fields} if order else set()
    modes: dict[int, int] = {}
    for place, column in enumerate(schema.fields):
        mode = _COUNTS_AND_BOUNDS if place < most or column.field_id in sorted_by else _NOTHING
        if STATISTICS in properties and column.field_id not in sorted_by:
            mode = _parse_statistics(properties[STATISTICS], _COUNTS_AND_BOUNDS)
        modes[column.field_id] = _parse_statistics(properties.get(f"{STATISTICS_OF_COLUMN}{column.name}", ""), mode)
    modes |= dict.fromkeys({*keys, *_find_key_ids(table), *schema.identifier_field_ids}, _COUNTS_AND_BOUNDS)
    return MissingStatistics(
        frozenset(number for number, mode in modes.items() if mode < _COUNTS_AND_BOUNDS),
        frozenset(number for number, mode in modes.items() if mode < _COUNTS),
        frozenset(
            column.field_id
            for column in schema.fields
            if modes[column.field_id] == _WHOLE_BOUNDS and isinstance(column.field_type, StringType | BinaryType)
        ),
    )


def _find_key_ids(table: Table) -> set[int]:
    """Return the ids of all columns that have keys, of any task. Properties that were changed by hand are left out."""
    ids = set[int]()
    for name, text in table.properties.items():
        if name.startswith(KEY_COLUMNS_PREFIX):
            with suppress(msgspec.DecodeError):
                ids.update(msgspec.json.decode(text, type=KeyColumns).columns.values())
    return ids | {find_newest_column(table, number) for number in ids}


def _parse_statistics(text: str, default: int) -> int:
    """Return which statistics a property asks for. `truncate(…)` asks for bounds of different lengths."""
    if re.fullmatch(r"truncate\(0*[1-9][0-9]*\)", text, re.IGNORECASE):
        return _COUNTS_AND_BOUNDS
    return {"none": _NOTHING, "counts": _COUNTS, "full": _WHOLE_BOUNDS}.get(text.lower(), default)


@contextmanager
def name_table_in_errors(table: Table) -> Iterator[None]:
    """Turn a ValueError about a property into a UserError that names the table."""
    try:
        yield
    except ValueError as error:
        remedy = _OTHER_TABLE if isinstance(error, _FixedPropertyError) else CORRECT_TABLE
        raise UserError(f"Table {TableIdentifier.of(table)}: table property {error}. {remedy}") from error


def read_switch(properties: Mapping[str, str], name: str, default: bool) -> bool:
    """Return whether a property is true. ValueError if it is neither true nor false."""
    with demand(properties, name, "must be true or false"):
        return property_as_bool(dict(properties), name, default)
