"""What a user reads of a config that is wrong, kept in a file to be reviewed: every complaint, with its path."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from connector.config.catalog import GLUE, HIVE, LOCAL, REST, S3_TABLES, SQL
from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from protocol.flow import Json
from support.snapshots import check_text

KEYS: Final = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "id", "awsSecretAccessKey": "planted"}
ON_S3: Final = {"namespace": "shop", "bucket": "lake", "region": "us-east-1", "credentials": KEYS}
ON_LOCAL: Final = {"namespace": "shop", "catalog": {"catalog_type": LOCAL}}
REST_CATALOG: Final = {"catalog_type": REST, "uri": "https://host", "warehouse": "lake"}
SQL_CATALOG: Final = {"catalog_type": SQL, "uri": "postgresql://host/lake"}
WEBHOOK_SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
ROLE: Final = {"auth_type": "AWSRole", "aws_role_arn": "arn:aws:iam::123456789012:role/flow"}
AZURE: Final = {"storage_type": "Azure", "account": "lake", "container": "c-1"}


def on_rest(**properties: str) -> Json:
    return {"namespace": "shop", "catalog": {**REST_CATALOG, "properties": properties}}


def stored_in(storage: Json, **config: Json) -> Json:
    return {"namespace": "shop", "catalog": SQL_CATALOG, "storage": storage, **config}


def nested(levels: int) -> Json:
    config: Json = {}
    for _ in range(levels):
        config = {"planted": config}
    return config


def on_sql(uri: str) -> Json:
    return {**ON_S3, "catalog": {"catalog_type": SQL, "uri": uri}}


def webhook_with(secret: str) -> Json:
    return {**ON_LOCAL, "notify": {"url": "https://hooks.example.com/planted", "secret": secret}}


def advanced(**settings: Json) -> Json:
    return {**ON_LOCAL, "advanced": settings}


def scheduled(**schedule: str) -> Json:
    return {**ON_LOCAL, "syncSchedule": schedule}


ENDPOINTS: Final[Mapping[str, Json]] = {
    "nothing at all": {},
    "no config": None,
    "no object": "planted",
    "other types than they should be": {
        **ON_S3,
        "bucket": 1,
        "upload_interval": ["planted"],
        "catalog": {"catalog_type": LOCAL, "warehouse": {"planted": 1}},
        "advanced": {
            "nanosecond_timestamps": "planted",
            "max_waiting_commits": 1.5,
            "commit_after_rows": "planted",
            "feature_flags": 7,
            "spark": "planted",
        },
    },
    "unknown properties": {**ON_LOCAL, "regoin": "us-east-1", "zzzzzz": "planted"},
    "a property of bindings": {**ON_LOCAL, "delta_updates": False},
    "properties of the catalog beside it": {**ON_LOCAL, "catalog_type": "Local", "uri": "planted"},
    "a name that is near one of another place": {**ON_LOCAL, "role_arn": "planted"},
    "an unknown catalog": {"namespace": "shop", "catalog": {"catalog_type": "Hadoop"}},
    "no type of catalog": {"namespace": "shop", "catalog": {}},
    "an unknown store": stored_in({"storage_type": "FTP"}),
    "an unknown way to sign in": {**ON_S3, "credentials": {"auth_type": "password"}},
    "nothing of what each catalog needs": {"namespace": "shop", "catalog": {"catalog_type": GLUE}},
    "a prefix that is an address": {**ON_S3, "prefix": "s3://lake/flow"},
    "an endpoint with the bucket": {**ON_S3, "s3_endpoint": "https://store.example.com/lake/"},
    "a store whose endpoint has the bucket": stored_in(
        {"storage_type": "Amazon S3", "bucket": "lake", "region": "auto", "endpoint": "https://store.example.com/lake"},
        credentials=KEYS,
    ),
    "names as other connectors write them": {
        **ON_S3,
        "credentials": {"auth_type": "AWSAccessKey", "aws_access_key_id": "id", "aws_secret_access_key": "planted"},
        "upload-interval": "PT1M",
        "UploadInterval": "PT1M",
    },
    "a token of two lines": {"namespace": "shop", "catalog": {**REST_CATALOG, "token": "planted\nplanted"}},
    "a token with the word before it": {"namespace": "shop", "catalog": {**REST_CATALOG, "token": "Bearer planted"}},
    "a client without a secret": {"namespace": "shop", "catalog": {**REST_CATALOG, "credential": "planted: "}},
    "a secret without a client": {"namespace": "shop", "catalog": {**REST_CATALOG, "credential": ":planted"}},
    "keys that are exchanged": {
        **ON_S3,
        "credentials": {**KEYS, "awsAccessKeyId": "planted", "awsSecretAccessKey": "AKIAIOSFODNN7EXAMPLE"},
        "storage": {
            "storage_type": "Amazon S3",
            "bucket": "b",
            "region": "Europe (Ireland)",
            "credentials": {**ROLE, "awsAccessKeyId": "planted", "awsSecretAccessKey": "ASIAIOSFODNN7EXAMPLE\n"},
        },
    },
    "older keys that are exchanged": {
        **ON_S3,
        "credentials": None,
        "aws_access_key_id": "planted",
        "aws_secret_access_key": "AKIAIOSFODNN7EXAMPLE",
    },
    "an address in place of a region": {**ON_S3, "region": "https://s3.us-east-1.amazonaws.com"},
    "texts in place of choices": {"namespace": "shop", "catalog": "AWS Glue", "credentials": "planted", "storage": 1},
    "too long a name of a catalog": on_sql("postgresql://host/lake") | {"catalog": {**SQL_CATALOG, "name": "n" * 256}},
    "a REST catalog that is nowhere": {"namespace": "shop", "catalog": {"catalog_type": REST}},
    "a SQL catalog without a store": {"namespace": "shop", "catalog": SQL_CATALOG},
    "S3 Tables without keys": {
        "namespace": "shop",
        "catalog": {"catalog_type": S3_TABLES, "table_bucket_arn": "arn:aws:s3tables:us-east-1:1:bucket/lake"},
    },
    "no table bucket": {**ON_S3, "catalog": {"catalog_type": S3_TABLES, "table_bucket_arn": "planted"}},
    "texts that are not what they should be": {
        "namespace": "a.b",
        "bucket": "s3://planted/",
        "prefix": "a#b",
        "region": "",
        "credentials": {**ROLE, "aws_role_arn": "planted", "awsAccessKeyId": "id", "awsSecretAccessKey": "planted"},
        "catalog": {"catalog_type": SQL, "uri": "postgresql://me:planted@host/lake"},
    },
    "addresses that are none": {
        "namespace": "shop",
        "catalog": {**REST_CATALOG, "uri": "host", "oauth2_server_uri": "host"},
    },
    "addresses to which no path can be appended": {
        **stored_in({**AZURE, "endpoint": "https://blobs.example.com/#planted"}),
        "catalog": {**REST_CATALOG, "uri": "https://catalog.example.com/iceberg?warehouse=planted"},
    },
    "addresses whose servers cannot be": {
        "namespace": "shop",
        "s3_endpoint": "http://minio:90000",
        "catalog": {**REST_CATALOG, "uri": "http://[::1", "oauth2_server_uri": "https://host:443 /token"},
    },
    "a metastore whose port is none": {
        **ON_S3,
        "catalog": {"catalog_type": HIVE, "uri": "thrift://a:9083,thrift://b:x"},
    },
    "metastores with a space": {**ON_S3, "catalog": {"catalog_type": HIVE, "uri": "thrift://a:9083, thrift://b:9083"}},
    "a database whose host cannot be": on_sql("postgresql://me@[::1/lake"),
    "a database whose port is none": on_sql("postgresql://me@host:54320000/lake"),
    "several databases": on_sql("postgresql://me@one:5432,two:5432/lake"),
    "a parameter that libpq does not have": on_sql("postgresql://me@host/lake?sslmod=planted"),
    "a parameter that is a secret": on_sql("postgresql://me@host/lake?scram_client_key=planted"),
    "a parameter twice": on_sql("postgresql://me@host/lake?sslmode=require&sslmode=planted"),
    "a store of Azure's whose server cannot be": stored_in(
        {**AZURE, "account_key": "cGxhbnRlZA==", "endpoint": "http://host:0"}
    ),
    "a directory of HDFS whose server cannot be": stored_in({"storage_type": "HDFS", "uri": "hdfs://name:node/lake"}),
    "texts that headers cannot have": {
        **ON_S3,
        "credentials": {**KEYS, "awsAccessKeyId": "plänted", "awsSecretAccessKey": "s", "awsSessionToken": "plan ted"},
        "catalog": {**REST_CATALOG, "token": "plantéd", "properties": {"header.X-Key": "planted…", "header.X Y": "1"}},
    },
    "a header of two lines": on_rest(**{"header.X-Key": "planted\nX-Other: 1"}),
    "properties of another type": on_rest(
        **{
            "oauth2-server-uri": "planted",
            "rest-page-size": "planted",
            "rest.signing-name": "planted ",
            "rest.sigv4-enabled": "planted",
            "s3.anonymous": "planted",
            "s3.connect-timeout": "0",
            "s3.proxy-uri": "http://me:planted@[::1",
            "s3.request-timeout": "60s",
        }
    ),
    "a bucket that nothing opens": stored_in({"storage_type": "Amazon S3", "bucket": "b", "region": "eu-west-1"}),
    "a bucket whose role nobody can assume": stored_in(
        {"storage_type": "Amazon S3", "bucket": "b", "region": "eu-west-1", "credentials": ROLE}
    ),
    "a bucket with half of temporary keys": stored_in(
        {
            "storage_type": "Amazon S3",
            "bucket": "b",
            "region": "eu-west-1",
            "credentials": {**KEYS, "awsAccessKeyId": "ASIAPLANTED"},
        }
    ),
    "a bucket without a region, twice": {**ON_S3, "storage": {"storage_type": "Amazon S3", "bucket": "b"}},
    "a bucket of another storage for S3 Tables": {
        "namespace": "shop",
        "catalog": {"catalog_type": S3_TABLES, "table_bucket_arn": "arn:aws:s3tables:us-east-1:1:bucket/lake"},
        "credentials": KEYS,
        "storage": {"storage_type": "Amazon S3", "bucket": "b", "region": "eu-west-1"},
    },
    "a service account that is none": {"namespace": "shop", "catalog": {**REST_CATALOG, "service_account_json": "{}"}},
    "a service account beside other ways to sign in": {
        **ON_S3,
        "catalog": {
            **REST_CATALOG,
            "credential": "planted",
            "token": "planted",
            "service_account_json": '{"client_email": "planted", "private_key": "planted", "token_uri": "planted"}',
            "properties": {"rest.sigv4-enabled": "true"},
        },
    },
    "tokens of Google beside another token": {
        "namespace": "shop",
        "catalog": {**REST_CATALOG, "token": "planted", "properties": {"rest.auth.type": "google"}},
        "advanced": {"feature_flags": "use_machine_credentials"},
    },
    "tokens of Google for nobody": on_rest(**{"rest.auth.type": "google"}),
    "a way to sign in that has settings": on_rest(**{"rest.auth.type": "oauth2"}),
    "a webhook without an address": {**ON_LOCAL, "notify": {"secret": WEBHOOK_SECRET}},
    "a webhook that is no address": {**ON_LOCAL, "notify": {"url": "hooks.example.com/planted"}},
    "a webhook with a line break at its end": {**ON_LOCAL, "notify": {"url": "https://hooks.example.com/planted\n"}},
    "a webhook with a password": {**ON_LOCAL, "notify": {"url": "https://me:planted@hooks.example.com/"}},
    "a webhook with a fragment": {**ON_LOCAL, "notify": {"url": "https://hooks.example.com/#planted"}},
    "a webhook whose host cannot be": {**ON_LOCAL, "notify": {"url": "https://hooks..example.com/planted"}},
    "a webhook whose port cannot be": {**ON_LOCAL, "notify": {"url": "https://hooks.example.com:99999/planted"}},
    "a webhook whose host is no address": {**ON_LOCAL, "notify": {"url": "https://[::1/planted"}},
    "a webhook without a host": {**ON_LOCAL, "notify": {"url": "https://:443/planted"}},
    "a secret that is not of Standard Webhooks": webhook_with("planted"),
    "a secret that is no base64": webhook_with("whsec_planted!"),
    "a secret that is too short": webhook_with("whsec_cGxhbnRlZA=="),
    "a secret that is too long": webhook_with("whsec_" + "cGxh" * 22),
    "a webhook with other settings": {**ON_LOCAL, "notify": {"url": "https://hooks.example.com/", "headers": {}}},
    "a store of Azure's that cannot be": stored_in(
        {"storage_type": "Azure", "account": "Lake!", "container": "C", "account_key": "???"}
    ),
    "names with line breaks at their ends": stored_in({**AZURE, "account": "lake\n", "container": "lake\n"}),
    "Azure without a sign-in": stored_in(AZURE),
    "Azure with several sign-ins": stored_in({**AZURE, "account_key": "cGxhbnRlZA==", "sas_token": "planted"}),
    "half an application": stored_in({**AZURE, "client_id": "planted"}),
    "Google without a sign-in": stored_in({"storage_type": "Google Cloud Storage", "bucket": "lake"}),
    "no key of a service account": stored_in(
        {"storage_type": "Google Cloud Storage", "bucket": "a/b", "service_account_json": "planted"}
    ),
    "no directory of HDFS": stored_in({"storage_type": "HDFS", "uri": "hdfs://planted"}),
    "a store beside a bucket": stored_in(
        {"storage_type": "Local Files", "directory": "/lake"}, bucket="lake", prefix="p"
    ),
    "a store beside Glue": {**ON_S3, "storage": {"storage_type": "Local Files", "directory": "/lake"}},
    "a store beside S3 Tables": {
        **ON_S3,
        "catalog": {"catalog_type": S3_TABLES, "table_bucket_arn": "arn:aws:s3tables:us-east-1:1:bucket/lake"},
        "storage": {"storage_type": "Local Files", "directory": "/lake"},
    },
    "a store beside Local": {**ON_LOCAL, "storage": {"storage_type": "Local Files", "directory": "/lake"}},
    "a directory of another machine": {
        "namespace": "shop",
        "catalog": {"catalog_type": LOCAL, "warehouse": "s3://lake/x"},
    },
    "a directory of two lines": {"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": "/lake\n"}},
    "a directory that a shell would find": {
        "namespace": "shop",
        "catalog": {"catalog_type": LOCAL, "warehouse": "~/x"},
    },
    "a bucket that no address can have": {**ON_S3, "bucket": "[planted]"},
    "a prefix of two lines": {**ON_S3, "prefix": "planted\nx"},
    "a null character": {**ON_S3, "catalog": {**SQL_CATALOG, "password": "planted\0"}},
    "older keys that headers cannot have": {
        **ON_S3,
        "credentials": None,
        "aws_access_key_id": "plänted",
        "aws_secret_access_key": "planted",
    },
    "a config that is nested too deeply": nested(300),
    "a directory with signs of URIs": {"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": "/lake?#"}},
    "a role's keys that are not there": {
        **ON_S3,
        "credentials": {**ROLE, "auth_type": "AWSIAM", "aws_region": "us-east-1"},
    },
    "a role that nobody assumes": {**ON_S3, "credentials": ROLE},
    "temporary keys without their token": {**ON_S3, "credentials": {**KEYS, "awsAccessKeyId": "ASIA1"}},
    "half a pair of keys": {**ON_S3, "credentials": None, "aws_access_key_id": "planted"},
    "the other half": {**ON_S3, "credentials": None, "aws_secret_access_key": "planted"},
    "signed requests without keys": on_rest(**{"rest.sigv4-enabled": "true"}),
    "a property that has a setting": on_rest(**{"s3.secret-access-key": "planted"}),
    "a property that PyIceberg does not read": on_rest(**{"s3.signer": "planted"}),
    "a bad interval": {**ON_LOCAL, "upload_interval": "5 minutes"},
    "too long an interval": {**ON_LOCAL, "upload_interval": "PT4H1S"},
    "a schedule of other values": scheduled(
        syncFrequency="10m", timezone="Mars", fastSyncStartTime="9", fastSyncStopTime="24:00", fastSyncEnabledDays="S-M"
    ),
    "half a schedule": scheduled(fastSyncEnabledDays="M-F", fastSyncStartTime="09:00"),
    "a schedule without a time zone": scheduled(
        syncFrequency="5m", fastSyncStartTime="09:00", fastSyncStopTime="17:00"
    ),
    "a fast sync of no time": scheduled(
        syncFrequency="5m", timezone="UTC", fastSyncStartTime="9:00", fastSyncStopTime="09:00"
    ),
    "a schedule and an interval": {**scheduled(syncFrequency="5m"), "upload_interval": "PT1M"},
    "an unknown feature flag": advanced(feature_flags="no_such_flag"),
    "variants": advanced(variant_columns=True),
    "no setting of Spark's": advanced(spark={"master": "local[2]"}),
    "too little that may wait": advanced(max_waiting_commits=0, max_waiting_bytes=0),
    "too little for a commit": advanced(commit_after_rows=0, commit_after_bytes=0),
    "no places for metrics": advanced(metrics={"listen": "somewhere", "file": "metrics.txt"}),
    "an unknown evolution": advanced(schema_evolution="loose"),
    "names in a case that Glue does not keep": {**ON_S3, "advanced": {"table_identifier_case": "preserve"}},
    "no namespace": {**ON_LOCAL, "namespace": " "},
    "a namespace with a space in front": {**ON_LOCAL, "namespace": " shop"},
    "a namespace of many lines": {**ON_LOCAL, "namespace": "a\nb"},
    "too long a namespace": {**ON_LOCAL, "namespace": "n" * 256},
    "a namespace that web servers refuse": {**on_rest(), "namespace": "a/b"},
    "a namespace that Hive refuses": {
        **ON_S3,
        "namespace": "a-b",
        "catalog": {"catalog_type": HIVE, "uri": "http://host"},
    },
    "a namespace that S3 Tables refuses": {
        **ON_S3,
        "namespace": "a-b",
        "catalog": {"catalog_type": S3_TABLES, "table_bucket_arn": "arn:aws:s3tables:us-east-1:1:bucket/lake"},
    },
}
BINDINGS: Final[Mapping[str, Sequence[Json]]] = {
    "several bindings": [
        {},
        {"table": "a.b", "delta_updates": "planted"},
        {"table": "t", "on_invalid": "ignore", "schema_evolution": "loose", "max_rejected_ratio": 2},
        {"table": "t", "max_rejected_ratio": -0.5, "additional_table_properties": {"a": 1}},
        {"table": "t", "max_rejected_ratio": "planted"},
        {"table": "", "tabel": "t", "namespace": "x.y"},
        {"table": "t ", "namespace": "x "},
    ],
}


# What there is to choose from is another matter.
CHOICES: Final = {
    ", ".join(ENDPOINT_SCHEMA["properties"]): "…",
    ", ".join(
        repr(each["properties"]["catalog_type"]["const"]) for each in ENDPOINT_SCHEMA["properties"]["catalog"]["oneOf"]
    ): "…",
}


def complaints(config: Json, bindings: Sequence[Json] = ()) -> str:
    with pytest.raises(InvalidConfigError) as error:
        parse(config, bindings)
    assert "planted" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_what_is_wrong_with_an_endpoint_is_said_by_path(name: str) -> None:
    check_text("config_errors", name, complaints(ENDPOINTS[name]), CHOICES)


@pytest.mark.parametrize("name", BINDINGS)
def test_what_is_wrong_with_bindings_is_said_by_path(name: str) -> None:
    check_text("config_errors", name, complaints(ON_LOCAL, BINDINGS[name]))
