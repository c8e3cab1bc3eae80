"""The endpoint's and the resources' config schemas: what spec prints is what every config is checked against."""

from collections.abc import Mapping
from typing import Final

from protocol.flow import Json

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

AWS_ACCESS_KEY: Final = "AWSAccessKey"
AWS_IAM: Final = "AWSIAM"

REST: Final = "Iceberg REST Server"
GLUE: Final = "AWS Glue"
LOCAL: Final = "Local"

DEFAULT_UPLOAD_INTERVAL: Final = "PT5M"

DEFAULT_MAX_WAITING_COMMITS: Final = 100
DEFAULT_MAX_WAITING_BYTES: Final = 10 << 30
WITHOUT_DOTS: Final = "^[^.]*$"
WITHOUT_SLASHES: Final = "^[^/]*$"
WITHOUT_URI_SIGNS: Final = "^[^#?]*$"
HTTP_ADDRESS: Final = "^https?://"
SPARK_SETTING: Final = r"^spark\."

# What a pattern demands, in the words of an error.
PATTERN_DEMANDS: Final[Mapping[str, str]] = {
    WITHOUT_DOTS: "must not contain a dot",
    WITHOUT_SLASHES: "must be a name, without a slash",
    # PyIceberg takes a location for a URI: it would write to the part before the sign.
    WITHOUT_URI_SIGNS: "must not contain # or ?",
    HTTP_ADDRESS: "must begin with http:// or https://",
    SPARK_SETTING: "must be a setting whose name begins with spark.",
}

_CREDENTIALS: Final[Json] = {
    "type": "object",
    "title": "Authentication",
    "description": "How to sign in to AWS. Every catalog but Local needs it.",
    "order": 0,
    "discriminator": {"propertyName": "auth_type"},
    "x-iam-auth": True,
    "oneOf": [
        {
            "type": "object",
            "title": "AWS Access Key",
            "properties": {
                "auth_type": {"type": "string", "const": AWS_ACCESS_KEY, "default": AWS_ACCESS_KEY, "order": 0},
                "awsAccessKeyId": {
                    "type": "string",
                    "title": "AWS Access Key ID",
                    "description": "The id of an access key that may read and write the bucket and the catalog.",
                    "minLength": 1,
                    "order": 1,
                },
                "awsSecretAccessKey": {
                    "type": "string",
                    "title": "AWS Secret Access Key",
                    "description": "The secret of the access key.",
                    "minLength": 1,
                    "order": 2,
                    "secret": True,
                },
            },
            "required": ["auth_type", "awsAccessKeyId", "awsSecretAccessKey"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "AWS IAM",
            "properties": {
                "auth_type": {"type": "string", "const": AWS_IAM, "default": AWS_IAM, "order": 0},
                "aws_role_arn": {
                    "type": "string",
                    "title": "AWS Role ARN",
                    "description": "The role that Flow assumes. It may read and write the bucket and the catalog.",
                    "minLength": 1,
                    "order": 1,
                },
                "aws_region": {
                    "type": "string",
                    "title": "AWS Region",
                    "description": "The region in which the role is assumed.",
                    "minLength": 1,
                    "order": 2,
                },
                # The runtime assumes the role and writes these; nobody types them.
                "aws_access_key_id": {"type": "string", "x-hidden-field": True},
                "aws_secret_access_key": {"type": "string", "secret": True, "x-hidden-field": True},
                "aws_session_token": {"type": "string", "secret": True, "x-hidden-field": True},
            },
            "required": ["auth_type", "aws_role_arn", "aws_region"],
            "additionalProperties": False,
        },
    ],
}

_CATALOG: Final[Json] = {
    "type": "object",
    "title": "Catalog",
    "description": "The Iceberg catalog that keeps the tables. Without one it is AWS Glue.",
    "order": 7,
    "discriminator": {"propertyName": "catalog_type"},
    "oneOf": [
        {
            "type": "object",
            "title": "REST",
            "properties": {
                "catalog_type": {"type": "string", "const": REST, "default": REST, "order": 0},
                "uri": {
                    "type": "string",
                    "title": "URI",
                    "description": "The catalog's address, such as https://yourserver.com/catalog.",
                    "pattern": HTTP_ADDRESS,
                    "order": 1,
                },
                "warehouse": {
                    "type": "string",
                    "title": "Warehouse",
                    "description": "The warehouse to use, by the name that the catalog gives it.",
                    "minLength": 1,
                    "order": 2,
                },
                "credential": {
                    "type": "string",
                    "title": "Credential",
                    "description": "An OAuth2 client's credential, as client_id:client_secret.",
                    "order": 3,
                    "secret": True,
                },
                "token": {
                    "type": "string",
                    "title": "Token",
                    "description": "A bearer token, for catalogs that do not take a credential.",
                    "order": 4,
                    "multiline": True,
                    "secret": True,
                },
                "scope": {
                    "type": "string",
                    "title": "Scope",
                    "description": "The OAuth2 scope to ask for with the credential. Without one it is `catalog`.",
                    "order": 5,
                },
            },
            "required": ["catalog_type", "uri", "warehouse"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "AWS Glue",
            "properties": {
                "catalog_type": {"type": "string", "const": GLUE, "default": GLUE, "order": 0},
                "glue_id": {
                    "type": "string",
                    "title": "Glue Catalog ID",
                    "description": "The account whose Glue Data Catalog to use, if it is not the key's own.",
                    "order": 1,
                },
            },
            "required": ["catalog_type"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "Local",
            "description": "Tables and their catalog in a directory of the machine that the connector runs on.",
            "properties": {
                "catalog_type": {"type": "string", "const": LOCAL, "default": LOCAL, "order": 0},
                "warehouse": {
                    "type": "string",
                    "title": "Warehouse Directory",
                    "description": "The directory, made if it is missing. Without one it is a temporary directory.",
                    "order": 1,
                },
            },
            "required": ["catalog_type"],
            "additionalProperties": False,
        },
    ],
}

_ADVANCED: Final[Json] = {
    "type": "object",
    "title": "Advanced Options",
    "description": "Options that most materializations do not need.",
    "order": 8,
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
    },
    "additionalProperties": False,
}

ENDPOINT_SCHEMA: Final[Json] = {
    "$schema": SCHEMA_DIALECT,
    "type": "object",
    "title": "Iceberg Endpoint",
    "properties": {
        "credentials": _CREDENTIALS,
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
            "description": "The S3 bucket for data files. Every catalog but Local needs it.",
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
            "description": "The AWS region of the bucket and of Glue. Every catalog but Local needs it.",
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
        "catalog": _CATALOG,
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
    },
    "required": ["table"],
    "additionalProperties": False,
}
