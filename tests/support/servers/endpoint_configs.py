"""Endpoint configs as a user writes them, for catalogs whose tables are in a bucket."""

from connector.config.catalog import GLUE, REST
from protocol.flow import Json
from support.servers.s3_server import S3Server


def on_s3(s3: S3Server, bucket: str, namespace: str, catalog: Json) -> Json:
    return {
        "namespace": namespace,
        "upload_interval": "PT0S",
        "credentials": aws_keys(s3, s3.root.secret_access_key),
        "bucket": bucket,
        "prefix": "lake/flow",
        "region": s3.region,
        "s3_endpoint": s3.endpoint,
        "catalog": catalog,
    }


def aws_keys(s3: S3Server, secret: str) -> Json:
    return {"auth_type": "AWSAccessKey", "awsAccessKeyId": s3.root.access_key_id, "awsSecretAccessKey": secret}


def rest(uri: str) -> Json:
    return {"catalog_type": REST, "uri": uri, "warehouse": "lake"}


def glue() -> Json:
    return {"catalog_type": GLUE}
