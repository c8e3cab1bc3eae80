"""The schemas of endpoint and resource configs: spec prints them, and every config is checked against them."""

from typing import Final

from connector.config.catalog_schemas import CATALOG
from connector.config.credential_schemas import CREDENTIALS
from connector.config.patterns import SECRET_SETTING, SPARK_SETTING, WITHOUT_DOTS, WITHOUT_SLASHES, WITHOUT_URI_SIGNS
from connector.config.schema_evolution import SchemaEvolution
from connector.config.storage_schemas import STORAGE
from connector.model.invalid_values import DEFAULT_MAX_REJECTED_RATIO, OnInvalid
from protocol.flow import Json

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

DEFAULT_UPLOAD_INTERVAL: Final = "PT5M"

DEFAULT_SCHEMA_EVOLUTION: Final = SchemaEvolution.FULL
DEFAULT_MAX_WAITING_COMMITS: Final = 100
DEFAULT_MAX_WAITING_BYTES: Final = 10 << 30

_ADVANCED: Final[Json] = {
    "type": "object",
    "title": "Advanced Options",
    "description": "Options that most materializations do not need.",
    "order": 9,
    "advanced": True,
    "properties": {
        "feature_flags": {
            "type": "string",
            "title": "Feature Flags",
            "description": "Feature flags to turn on, separated by commas; a no_ before a flag turns it off.",
            "order": 0,
        },
        "nanosecond_timestamps": {
            "type": "boolean",
            "title": "Nanosecond Timestamps",
            "description": "Keep nanoseconds, in tables of format version 3. Not yet available.",
            "default": False,
            "order": 1,
        },
        "variant_columns": {
            "type": "boolean",
            "title": "Variant Columns",
            "description": "Keep objects and arrays as variants, in tables of format version 3. Not yet available.",
            "default": False,
            "order": 2,
        },
        "spark": {
            "type": "object",
            "title": "Spark Settings",
            "description": "Settings of the Spark session, such as spark.master or spark.driver.memory.",
            "propertyNames": {"pattern": SPARK_SETTING},
            "patternProperties": {SECRET_SETTING: {"type": "string", "secret": True}},
            "additionalProperties": {"type": "string"},
            "order": 3,
        },
        "max_waiting_commits": {
            "type": "integer",
            "title": "Waiting Transactions",
            "description": "How many transactions may wait for a table that refuses commits before the task stops.",
            "minimum": 1,
            "default": DEFAULT_MAX_WAITING_COMMITS,
            "order": 4,
        },
        "max_waiting_bytes": {
            "type": "integer",
            "title": "Waiting Bytes",
            "description": "How many bytes of data files may wait for such a table before the task stops.",
            "minimum": 1,
            "default": DEFAULT_MAX_WAITING_BYTES,
            "order": 5,
        },
        "schema_evolution": {
            "type": "string",
            "title": "Schema Evolution",
            "description": "How far tables that exist may be changed: not at all (strict), new columns only "
            "(add_columns), or whatever their fields need (full). A binding may have another setting.",
            "enum": [mode.value for mode in SchemaEvolution],
            "default": DEFAULT_SCHEMA_EVOLUTION.value,
            "order": 6,
        },
    },
    "additionalProperties": False,
}

ENDPOINT_SCHEMA: Final[Json] = {
    "$schema": SCHEMA_DIALECT,
    "type": "object",
    "title": "Iceberg Endpoint",
    "properties": {
        "credentials": CREDENTIALS,
        "aws_access_key_id": {
            "type": ["string", "null"],
            "title": "AWS Access Key ID",
            "description": "The older form of `credentials`: used where that is absent.",
            "x-hidden-field": True,
        },
        "aws_secret_access_key": {
            "type": ["string", "null"],
            "title": "AWS Secret Access Key",
            "description": "The older form of `credentials`: used where that is absent.",
            "secret": True,
            "x-hidden-field": True,
        },
        "bucket": {
            "type": "string",
            "title": "Bucket",
            "description": "The S3 bucket for data files. AWS Glue needs it; a REST catalog may choose the place "
            "itself.",
            "pattern": WITHOUT_SLASHES,
            "order": 1,
        },
        "prefix": {
            "type": "string",
            "title": "Prefix",
            "description": "A prefix of the names of all files, such as lake/flow.",
            "pattern": WITHOUT_URI_SIGNS,
            "order": 2,
        },
        "region": {
            "type": "string",
            "title": "Region",
            "description": "The AWS region of the bucket and of Glue, which needs it.",
            "order": 3,
        },
        "namespace": {
            "type": "string",
            "title": "Namespace",
            "description": "The namespace of tables whose binding names no other.",
            "pattern": WITHOUT_DOTS,
            "minLength": 1,
            "order": 4,
        },
        "upload_interval": {
            "type": "string",
            "title": "Upload Interval",
            "description": "How often small transactions are committed: an ISO-8601 duration of at most PT4H.",
            "format": "duration",
            "default": DEFAULT_UPLOAD_INTERVAL,
            "order": 5,
        },
        "s3_endpoint": {
            "type": "string",
            "title": "S3 Endpoint",
            "description": "The address of an S3-compatible store, if it is not Amazon's.",
            "order": 6,
        },
        "catalog": CATALOG,
        "storage": STORAGE,
        "advanced": _ADVANCED,
    },
    "required": ["namespace"],
    "additionalProperties": False,
}

RESOURCE_SCHEMA: Final[Json] = {
    "$schema": SCHEMA_DIALECT,
    "type": "object",
    "title": "Iceberg Table",
    "properties": {
        "table": {
            "type": "string",
            "title": "Table",
            "description": "The table's name. It is lower-cased.",
            "pattern": WITHOUT_DOTS,
            "minLength": 1,
            "order": 0,
            "x-collection-name": True,
        },
        "namespace": {
            "type": "string",
            "title": "Alternative Namespace",
            "description": "The table's namespace, if it is not the endpoint's. It is lower-cased.",
            "pattern": WITHOUT_DOTS,
            "order": 1,
            "x-schema-name": True,
        },
        "delta_updates": {
            "type": "boolean",
            "title": "Delta Updates",
            "description": "Append every update as a row. Updates in place (false) are not yet available.",
            "default": True,
            "order": 2,
            "x-delta-updates": True,
        },
        "additional_table_properties": {
            "type": "object",
            "title": "Additional Table Properties",
            "description": "Iceberg table properties to set when the table is created.",
            "additionalProperties": {"type": "string"},
            "order": 3,
            "advanced": True,
        },
        "on_invalid": {
            "type": "string",
            "title": "Invalid Values",
            "description": "What becomes of a value that its column cannot hold: it stops the task, it becomes null, "
            "or its row goes to a table of its own.",
            "enum": [policy.value for policy in OnInvalid],
            "default": OnInvalid.STOP.value,
            "order": 4,
            "advanced": True,
        },
        "schema_evolution": {
            "type": "string",
            "title": "Schema Evolution",
            "description": "How far this table may be changed, if not as the endpoint's advanced options say.",
            "enum": [mode.value for mode in SchemaEvolution],
            "order": 5,
            "advanced": True,
        },
        "max_rejected_ratio": {
            "type": "number",
            "title": "Rejected Rows",
            "description": "Which part of the rows may go to the table of rejected rows before the task stops, from 0 "
            "to 1.",
            "minimum": 0,
            "maximum": 1,
            "default": DEFAULT_MAX_REJECTED_RATIO,
            "order": 6,
            "advanced": True,
        },
    },
    "required": ["table"],
    "additionalProperties": False,
}
