"""The stores for data files other than Amazon S3, as the endpoint's config schema has them."""

from typing import Final

from connector.config.patterns import (
    AZURE_ACCOUNT,
    AZURE_CONTAINER,
    HDFS_DIRECTORY,
    HTTP_ADDRESS,
    WITHOUT_SLASHES,
    WITHOUT_URI_SIGNS,
)
from protocol.flow import Json

GOOGLE: Final = "Google Cloud Storage"
AZURE: Final = "Azure"
HDFS: Final = "HDFS"
LOCAL_FILES: Final = "Local Files"

_PREFIX: Final[Json] = {
    "type": "string",
    "title": "Prefix",
    "description": "A prefix of the names of all files, such as lake/flow.",
    "pattern": WITHOUT_URI_SIGNS,
    "order": 2,
}

STORAGE: Final[Json] = {
    "type": "object",
    "title": "Storage",
    "description": "Where data files are kept, if not in the S3 bucket above. For REST, SQL and Hive catalogs.",
    "order": 8,
    "discriminator": {"propertyName": "storage_type"},
    "oneOf": [
        {
            "type": "object",
            "title": "Google Cloud Storage",
            "properties": {
                "storage_type": {"type": "string", "const": GOOGLE, "default": GOOGLE, "order": 0},
                "bucket": {
                    "type": "string",
                    "title": "Bucket",
                    "description": "The bucket for data files.",
                    "pattern": WITHOUT_SLASHES,
                    "minLength": 1,
                    "order": 1,
                },
                "prefix": _PREFIX,
                "service_account_json": {
                    "type": "string",
                    "title": "Service Account JSON",
                    "description": "The JSON key of a service account that may read, write and delete the bucket's "
                    "objects.",
                    "order": 3,
                    "multiline": True,
                    "secret": True,
                },
                "endpoint": {
                    "type": "string",
                    "title": "Endpoint",
                    "description": "The address of the storage service, if it is not Google's own.",
                    "pattern": HTTP_ADDRESS,
                    "order": 4,
                    "advanced": True,
                },
            },
            "required": ["storage_type", "bucket"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "Azure",
            "description": "A container of Azure Blob Storage or of Data Lake Storage Gen2, with one way to sign in.",
            "properties": {
                "storage_type": {"type": "string", "const": AZURE, "default": AZURE, "order": 0},
                "account": {
                    "type": "string",
                    "title": "Storage Account",
                    "description": "The name of the storage account.",
                    "pattern": AZURE_ACCOUNT,
                    "order": 1,
                },
                "container": {
                    "type": "string",
                    "title": "Container",
                    "description": "The container for data files.",
                    "pattern": AZURE_CONTAINER,
                    "order": 2,
                },
                "prefix": {**_PREFIX, "order": 3},
                "account_key": {
                    "type": "string",
                    "title": "Account Key",
                    "description": "One of the account's access keys.",
                    "order": 4,
                    "secret": True,
                },
                "sas_token": {
                    "type": "string",
                    "title": "SAS Token",
                    "description": "A shared access signature that allows to read, create, write, list and delete "
                    "blobs.",
                    "order": 5,
                    "secret": True,
                },
                "tenant_id": {
                    "type": "string",
                    "title": "Tenant ID",
                    "description": "The Entra ID tenant of the application.",
                    "order": 6,
                },
                "client_id": {
                    "type": "string",
                    "title": "Client ID",
                    "description": "An application with the role Storage Blob Data Contributor.",
                    "order": 7,
                },
                "client_secret": {
                    "type": "string",
                    "title": "Client Secret",
                    "description": "The application's secret.",
                    "order": 8,
                    "secret": True,
                },
                "endpoint": {
                    "type": "string",
                    "title": "Endpoint",
                    "description": "The address of the blob service, if it is not Azure's own.",
                    "pattern": HTTP_ADDRESS,
                    "order": 9,
                    "advanced": True,
                },
            },
            "required": ["storage_type", "account", "container"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "HDFS",
            "description": "A directory of Hadoop's file system, where its native client (libhdfs) is installed.",
            "properties": {
                "storage_type": {"type": "string", "const": HDFS, "default": HDFS, "order": 0},
                "uri": {
                    "type": "string",
                    "title": "URI",
                    "description": "The directory, such as hdfs://namenode:8020/lake.",
                    "pattern": HDFS_DIRECTORY,
                    "order": 1,
                },
            },
            "required": ["storage_type", "uri"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "title": "Local Files",
            "description": "A directory that every machine which reads or writes the tables has at the same place.",
            "properties": {
                "storage_type": {"type": "string", "const": LOCAL_FILES, "default": LOCAL_FILES, "order": 0},
                "directory": {
                    "type": "string",
                    "title": "Directory",
                    "description": "The directory, made if it is missing.",
                    "minLength": 1,
                    "order": 1,
                },
            },
            "required": ["storage_type", "directory"],
            "additionalProperties": False,
        },
    ],
}
