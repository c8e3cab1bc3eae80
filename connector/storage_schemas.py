"""The stores for data files that are not Amazon S3, as the endpoint's config schema has them."""

from typing import Final

from connector.config_patterns import HTTP_ADDRESS, WITHOUT_SLASHES, WITHOUT_URI_SIGNS
from protocol.flow import Json

GOOGLE: Final = "Google Cloud Storage"

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
    "description": "Where data files are kept, if not in the S3 bucket above. For REST and SQL catalogs.",
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
                    "description": "The JSON key of a service account that may read, write and delete the bucket's objects.",
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
    ],
}
