"""The resource config: which table a binding writes to, and how."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

import msgspec

from connector.config.definition import Definition, Setting, schema_of
from connector.config.endpoint_config import SCHEMA_DIALECT
from connector.config.terms import SortTerm, Term, parse_partition_by, parse_partition_fields, parse_sort_by
from connector.config.values import FORMAT_VERSIONS, WITHOUT_DOTS, SchemaEvolution
from connector.model.invalid_values import DEFAULT_MAX_REJECTED_RATIO, OnInvalid
from connector.model.properties import Properties
from protocol.flow import Json

PARTITION_FIELDS: Final[Json] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"field": {"type": "string", "minLength": 1}, "transform": {"type": "string"}},
        "required": ["field"],
        "additionalProperties": False,
    },
}


class ExistingTableMode(StrEnum):
    """What becomes of a new binding whose table exists already, if the task did not create it."""

    REFUSE = "refuse"
    APPEND = "append"
    REQUIRE = "require"  # appends, and only a backfill creates the table

    @property
    def appends(self) -> bool:
        """Whether rows are added to such a table."""
        return self is not ExistingTableMode.REFUSE


class ResourceConfig(Definition, frozen=True):
    """A binding's table, and how rows are written to it."""

    title: ClassVar[str] = "Iceberg Table"

    table: Annotated[
        str,
        Setting(
            "Table",
            "The name of the table. It is converted to lower case, unless the endpoint has another case of names.",
            pattern=WITHOUT_DOTS,
            min_length=1,
            keywords={"x-collection-name": True},
        ),
    ]
    namespace: Annotated[
        str | None,
        Setting(
            "Alternative Namespace",
            "The namespace of the table, if it is not the endpoint's. It is converted like the table's name.",
            pattern=WITHOUT_DOTS,
            keywords={"x-schema-name": True},
        ),
    ] = None
    delta_updates: Annotated[
        bool,
        Setting(
            "Delta Updates",
            "Append a row for each document that a transaction changes (true), or keep one row for each key, with the "
            "last version of its document (false).",
            keywords={"x-delta-updates": True},
            is_nonsensitive=True,
        ),
    ] = True
    partition_by: Annotated[
        tuple[Term, ...] | None,
        Setting(
            "Partition By",
            "The table's partition spec, such as day(flow_published_at), bucket(16, id). A change applies to new rows. "
            "An empty text removes it; without the setting, an existing table keeps its own.",
            may_be_empty=True,
            parse=parse_partition_by,
        ),
    ] = None
    partition_fields: Annotated[
        tuple[Term, ...] | None,
        Setting(
            "Partition Fields",
            "The partition spec in the form of the public S3 Iceberg connector: use partition_by instead.",
            is_hidden=True,
            keywords=PARTITION_FIELDS,
            parse=parse_partition_fields,
        ),
    ] = None
    sort_by: Annotated[
        tuple[SortTerm, ...] | None,
        Setting(
            "Sort By",
            "The sort order of rows within each data file, such as customer_id, ordered_at desc nulls last. A change "
            "applies to new rows. An empty text removes it; without the setting, an existing table keeps its own.",
            may_be_empty=True,
            parse=parse_sort_by,
        ),
    ] = None
    # A default by a factory is not in the schema: a binding without the setting has the endpoint's.
    existing_table: Annotated[
        ExistingTableMode,
        Setting(
            "Existing Table",
            "What to do if the table exists already, and this task has neither created it nor written to it: refuse to "
            "publish the task (refuse), or add rows to the table (append). With require, rows are added, and only a "
            "backfill creates a table that does not exist. The default is refuse, unless a feature "
            "flag allows existing tables.",
            is_advanced=True,
        ),
    ] = msgspec.field(default_factory=lambda: ExistingTableMode.REFUSE)
    additional_table_properties: Annotated[
        Properties,
        Setting(
            "Additional Table Properties",
            "Iceberg table properties of the table. They are set whenever the task is published.",
            is_advanced=True,
        ),
    ] = Properties()
    on_invalid: Annotated[
        OnInvalid,
        Setting(
            "Invalid Values",
            "What to do with a value that its column cannot hold: stop the task (stop), write null (null), or write "
            "its row to a table of rejected rows (quarantine).",
            is_advanced=True,
        ),
    ] = OnInvalid.STOP
    max_rejected_ratio: Annotated[
        float,
        Setting(
            "Max Rejected Ratio",
            "The share of rows that may be rejected before the task fails, from 0 to 1.",
            minimum=0,
            maximum=1,
            is_advanced=True,
        ),
    ] = DEFAULT_MAX_REJECTED_RATIO
    schema_evolution: Annotated[
        SchemaEvolution,
        Setting(
            "Schema Evolution",
            "Which changes of this table are allowed. The default is the setting in the endpoint's advanced options.",
            is_advanced=True,
        ),
    ] = msgspec.field(default_factory=lambda: SchemaEvolution.FULL)
    format_version: Annotated[
        int,
        Setting(
            "Format Version",
            "Iceberg's format version of the table, when it is created: 2 or 3. The default is the setting in the "
            "endpoint's advanced options.",
            keywords={"enum": list(FORMAT_VERSIONS)},
            is_advanced=True,
        ),
    ] = msgspec.field(default_factory=lambda: FORMAT_VERSIONS[0])

    @property
    def partition_terms(self) -> tuple[Term, ...] | None:
        """The terms of the partition spec, in whichever form the config has them; None if it has none."""
        return self.partition_by if self.partition_by is not None else self.partition_fields or None


RESOURCE_SCHEMA: Final[Json] = {"$schema": SCHEMA_DIALECT, **schema_of(ResourceConfig)}
