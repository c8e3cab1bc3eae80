"""The ways to sign in to a cloud, as the endpoint's config schema has them."""

from typing import Final

from connector.config.patterns import ROLE_ARN
from protocol.flow import Json

AWS_ACCESS_KEY: Final = "AWSAccessKey"
AWS_IAM: Final = "AWSIAM"
AWS_ROLE: Final = "AWSRole"

TEMPORARY: Final = "ASIA"  # the prefix that AWS gives the ids of temporary keys

DEFAULT_SESSION_NAME: Final = "materialize-iceberg"

CREDENTIALS: Final[Json] = {
    "type": "object",
    "title": "Authentication",
    "description": "How to sign in to AWS. Local needs it not, nor a REST catalog that hands out keys for its tables.",
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
                "awsSessionToken": {
                    "type": "string",
                    "title": "AWS Session Token",
                    "description": "The session token of temporary keys, whose ids begin with ASIA. The task ends when "
                    "they expire.",
                    "order": 3,
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
        {
            "type": "object",
            "title": "AWS Role",
            "properties": {
                "auth_type": {"type": "string", "const": AWS_ROLE, "default": AWS_ROLE, "order": 0},
                "aws_role_arn": {
                    "type": "string",
                    "title": "AWS Role ARN",
                    "description": "The role that the connector assumes. It may read and write the bucket and the "
                    "catalog.",
                    "pattern": ROLE_ARN,
                    "order": 1,
                },
                "external_id": {
                    "type": "string",
                    "title": "External ID",
                    "description": "The external id that the role's trust policy asks for.",
                    "order": 2,
                },
                "role_session_name": {
                    "type": "string",
                    "title": "Role Session Name",
                    "description": "The name under which AWS's logs show what is done with the role.",
                    "default": DEFAULT_SESSION_NAME,
                    "order": 3,
                },
                "awsAccessKeyId": {
                    "type": "string",
                    "title": "AWS Access Key ID",
                    "description": "The id of an access key that may assume the role.",
                    "order": 4,
                },
                "awsSecretAccessKey": {
                    "type": "string",
                    "title": "AWS Secret Access Key",
                    "description": "The secret of the access key.",
                    "order": 5,
                    "secret": True,
                },
            },
            "required": ["auth_type", "aws_role_arn"],
            "additionalProperties": False,
        },
    ],
}
