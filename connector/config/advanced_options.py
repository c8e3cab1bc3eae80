"""The advanced options of the endpoint config."""

from typing import Annotated

from connector.config.definition import Definition, Setting
from connector.config.metrics_options import MetricsOptions
from connector.config.values import (
    FORMAT_VERSIONS,
    SECRET_SETTING,
    SPARK_SETTING,
    NameCase,
    SchemaEvolution,
    parse_feature_flags,
    refuse_variants,
)
from connector.model.properties import Properties


class AdvancedOptions(Definition, frozen=True):
    """Options that most tasks do not need."""

    feature_flags: Annotated[
        frozenset[str],
        Setting(
            "Feature Flags",
            "Feature flags to turn on, separated by commas. A flag that begins with no_ is turned off.",
            parse=parse_feature_flags,
        ),
    ] = frozenset()
    nanosecond_timestamps: Annotated[
        bool,
        Setting(
            "Nanosecond Timestamps",
            "Keep the nanoseconds of date-times, in new columns of tables of format version 3. New tables have this "
            "version then. PyIceberg and polars read such columns. Spark 4.1 and DuckDB 1.5 refuse the table.",
            is_nonsensitive=True,
        ),
    ] = False
    variant_columns: Annotated[
        bool,
        Setting(
            "Variant Columns",
            "Keep objects and arrays as variants. Not yet available.",
            parse=refuse_variants,
            is_nonsensitive=True,
        ),
    ] = False
    spark: Annotated[
        Properties,
        Setting(
            "Spark Settings",
            "Settings of the Spark session, such as spark.master or spark.driver.memory.",
            keywords={
                "propertyNames": {"pattern": SPARK_SETTING},
                "patternProperties": {SECRET_SETTING: {"type": "string", "secret": True}},
            },
        ),
    ] = Properties()
    max_waiting_commits: Annotated[
        int,
        Setting(
            "Max Waiting Commits",
            "How many transactions may wait for a table that refuses commits before the task fails.",
            minimum=1,
            is_nonsensitive=True,
        ),
    ] = 100
    max_waiting_bytes: Annotated[
        int,
        Setting(
            "Max Waiting Bytes",
            "How many bytes of data files may wait for a table that refuses commits before the task fails.",
            minimum=1,
            is_nonsensitive=True,
        ),
    ] = 10 << 30
    schema_evolution: Annotated[
        SchemaEvolution,
        Setting(
            "Schema Evolution",
            "Which changes of existing tables are allowed: none (strict), new columns only (add_columns), or every "
            "change that their fields need (full). A binding can override this.",
            is_nonsensitive=True,
        ),
    ] = SchemaEvolution.FULL
    format_version: Annotated[
        int,
        Setting(
            "Format Version",
            "Iceberg's format version of new tables: 2, which most engines read, or 3, which Databricks needs for "
            "updates. Existing tables keep theirs until a backfill. A binding can override this.",
            keywords={"enum": list(FORMAT_VERSIONS)},
            is_nonsensitive=True,
        ),
    ] = FORMAT_VERSIONS[0]
    field_name_case: Annotated[
        NameCase,
        Setting(
            "Field Name Case",
            "The names of new columns: those of their fields (preserve), in lower case (lowercase), or in upper case "
            "(uppercase). Athena needs lower case in Amazon S3 Tables. Existing columns keep their names.",
            is_nonsensitive=True,
        ),
    ] = NameCase.PRESERVE
    table_identifier_case: Annotated[
        NameCase,
        Setting(
            "Table Identifier Case",
            "The names of namespaces and tables: in lower case (lowercase), in upper case (uppercase), or as the "
            "config has them (preserve). Only lowercase is possible with AWS Glue, Amazon S3 Tables and Hive. Set it "
            "before the task is published first.",
        ),
    ] = NameCase.LOWERCASE
    commit_after_rows: Annotated[
        int | None,
        Setting(
            "Commit After Rows",
            "Commit a transaction with this many rows or more without waiting for the upload interval. By default, the "
            "number of rows does not matter.",
            minimum=1,
            is_nonsensitive=True,
        ),
    ] = None
    commit_after_bytes: Annotated[
        int,
        Setting(
            "Commit After Bytes",
            "Commit a transaction with this many bytes of data files or more without waiting for the upload interval.",
            minimum=1,
            is_nonsensitive=True,
        ),
    ] = 128 << 20
    metrics: Annotated[
        MetricsOptions,
        Setting("Metrics", "Where metrics for Prometheus go. By default, there are none."),
    ] = MetricsOptions()

    @property
    def default_format_version(self) -> int:
        """The format version of new tables whose binding does not name one."""
        return FORMAT_VERSIONS[-1] if self.nanosecond_timestamps else self.format_version
