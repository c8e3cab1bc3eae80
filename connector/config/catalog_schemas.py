"""The catalogs that can be chosen, as the endpoint's config schema has them."""

from typing import Final

from connector.config import catalog_properties
from connector.config.catalog_properties import FILE_PROPERTIES, GLUE_PROPERTIES, HIVE_PROPERTIES, REST_PROPERTIES
from connector.config.patterns import HTTP_ADDRESS, METASTORES, POSTGRESQL, TABLE_BUCKET_ARN
from protocol.flow import Json

REST: Final = "Iceberg REST Server"
GLUE: Final = "AWS Glue"
S3_TABLES: Final = "Amazon S3 Tables"
SQL: Final = "SQL"
HIVE: Final = "Hive Metastore"
LOCAL: Final = "Local"

DEFAULT_CATALOG_NAME: Final = "iceberg"

CATALOG: Final[Json] = {
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
                "oauth2_server_uri": {
                    "type": "string",
                    "title": "OAuth2 Server URI",
                    "description": "Where the credential is exchanged for tokens. Without one it is the catalog "
                    "itself.",
                    "pattern": HTTP_ADDRESS,
                    "order": 6,
                },
                "properties": catalog_properties.schema(7, REST_PROPERTIES, FILE_PROPERTIES, headers=True),
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
                "properties": catalog_properties.schema(2, GLUE_PROPERTIES, FILE_PROPERTIES),
            },
            "required": ["catalog_type"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "Amazon S3 Tables",
            "properties": {
                "catalog_type": {"type": "string", "const": S3_TABLES, "default": S3_TABLES, "order": 0},
                "table_bucket_arn": {
                    "type": "string",
                    "title": "Table Bucket ARN",
                    "description": "The table bucket, such as arn:aws:s3tables:us-east-1:123456789012:bucket/lake.",
                    "pattern": TABLE_BUCKET_ARN,
                    "order": 1,
                },
            },
            "required": ["catalog_type", "table_bucket_arn"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "SQL",
            "description": "A catalog in the tables of a PostgreSQL database, as PyIceberg's SqlCatalog keeps it.",
            "properties": {
                "catalog_type": {"type": "string", "const": SQL, "default": SQL, "order": 0},
                "uri": {
                    "type": "string",
                    "title": "URI",
                    "description": "The database, such as postgresql://user@host:5432/lake.",
                    "pattern": POSTGRESQL,
                    "order": 1,
                },
                "password": {
                    "type": "string",
                    "title": "Password",
                    "description": "The user's password.",
                    "order": 2,
                    "secret": True,
                },
                "name": {
                    "type": "string",
                    "title": "Catalog Name",
                    "description": "The catalog's name, by which a database may hold several.",
                    "default": DEFAULT_CATALOG_NAME,
                    "order": 3,
                },
            },
            "required": ["catalog_type", "uri"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "Hive",
            "description": "Hive's metastore, 2.3.10 or 4.0 and newer.",
            "properties": {
                "catalog_type": {"type": "string", "const": HIVE, "default": HIVE, "order": 0},
                "uri": {
                    "type": "string",
                    "title": "URI",
                    "description": "The metastore, such as thrift://metastore:9083; or several, with commas in "
                    "between.",
                    "pattern": METASTORES,
                    "order": 1,
                },
                "properties": catalog_properties.schema(2, HIVE_PROPERTIES, FILE_PROPERTIES),
            },
            "required": ["catalog_type", "uri"],
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
                    "description": "The directory, made if it is missing. Without one it is a temporary directory that "
                    "only one process uses.",
                    "order": 1,
                },
            },
            "required": ["catalog_type"],
            "additionalProperties": False,
        },
    ],
}
