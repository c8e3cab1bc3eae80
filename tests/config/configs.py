"""Endpoint configs of several catalogs, and the complaints about a config."""

import pytest

from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from protocol.flow import Json

LOCAL: Json = {"namespace": "ns", "catalog": {"catalog_type": "Local"}}
ACCESS_KEY: Json = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "id", "awsSecretAccessKey": "secret"}
GLUE: Json = {"namespace": "ns", "bucket": "b", "region": "us-east-1", "credentials": ACCESS_KEY}
REST: Json = {
    **GLUE,
    "catalog": {"catalog_type": "Iceberg REST Server", "uri": "https://host/catalog", "warehouse": "wh"},
}
EVERYTHING: Json = {
    **REST,
    "aws_access_key_id": "older-id",
    "aws_secret_access_key": "older secret",
    "prefix": "/lake/flow/",
    "upload_interval": "PT1H30M",
    "s3_endpoint": "http://store:9000",
    "notify": {"url": "https://hooks/lake?token=t", "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"},
    "catalog": {
        **REST["catalog"],
        "credential": "client:pass",
        "token": "bearer",
        "scope": "all",
        "oauth2_server_uri": "https://idp/token",
        "properties": {"header.X-Key": "in a header"},
    },
    "advanced": {
        "feature_flags": "allow_existing_tables_for_new_bindings",
        "nanosecond_timestamps": False,
        "variant_columns": False,
        "spark": {"spark.master": "local[2]"},
    },
}
IAM: Json = {
    **GLUE,
    "credentials": {
        "auth_type": "AWSIAM",
        "aws_region": "us-east-1",
        "aws_role_arn": "arn:aws:iam::1:role/flow",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
    },
}
ROLE: Json = {
    **GLUE,
    "credentials": {
        "auth_type": "AWSRole",
        "aws_role_arn": "arn:aws:iam::1:role/flow",
        "external_id": "ours",
        "awsAccessKeyId": "id",
        "awsSecretAccessKey": "secret",
    },
}
S3_TABLES: Json = {
    "namespace": "ns",
    "credentials": ACCESS_KEY,
    "catalog": {"catalog_type": "Amazon S3 Tables", "table_bucket_arn": "arn:aws:s3tables:eu-west-1:1:bucket/lake"},
}


def complaints(endpoint: Json, *resources: Json) -> list[str]:
    with pytest.raises(InvalidConfigError) as raised:
        parse(endpoint, resources)
    return str(raised.value).splitlines()


def without(endpoint: Json, name: str) -> Json:
    return {key: value for key, value in endpoint.items() if key != name}


def with_catalog(**properties: Json) -> Json:
    return {**LOCAL, "catalog": {"catalog_type": "Local", **properties}}


def with_advanced(**properties: Json) -> Json:
    return {**LOCAL, "advanced": properties}
