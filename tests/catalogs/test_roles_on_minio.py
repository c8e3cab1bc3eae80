"""A role whose sessions and policies a real S3 server enforces: MinIO, which is its own STS."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from connector.checks import storage_probe
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.storage.store_properties import data_file_properties
from fixtures.collection import NAMESPACE
from protocol.flow import Json
from support.servers.amazon import ROLE, role_credentials, sts
from support.servers.minio import Minio, SessionVendor, minio, minio_server
from support.servers.policy import documented_statements
from support.servers.postgres import Postgres
from support.servers.s3_server import Keys
from support.sessions.leftovers import Watch, exposed
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [
    pytest.mark.catalog,
    pytest.mark.slow,  # its server is built for ten minutes
]


PREFIX: Final = "lake/flow"
LIFETIME: Final = timedelta(seconds=10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio_server(minio(), tmp_path_factory.mktemp("minio")) as running:
        yield running


@pytest.fixture
def bucket(server: Minio) -> str:
    return server.s3.new_bucket()


@pytest.fixture
def user(server: Minio, bucket: str) -> Keys:
    """Who has exactly the documented policy."""
    return server.new_user(*documented_statements("s3", bucket=bucket, prefix=PREFIX))


@pytest.fixture
def config(postgres: Postgres, server: Minio, bucket: str, user: Keys) -> Mapping[str, Json]:
    return {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "credentials": role_credentials(user),
        "bucket": bucket,
        "prefix": PREFIX,
        "region": server.s3.region,
        "s3_endpoint": server.s3.endpoint,
        "catalog": {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password},
    }


@pytest.fixture
def assumed_at_minio(server: Minio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.s3.endpoint)


def ids(config: Mapping[str, Json], postgres: Postgres, server: Minio, table: str) -> list[int]:
    uri = config["catalog"]["uri"].replace("postgresql://lake@", f"postgresql+psycopg://lake:{postgres.password}@")
    with SqlCatalog("iceberg", uri=uri, **server.s3.file_properties()) as reader:
        return sorted(reader.load_table((NAMESPACE, table)).scan().to_arrow()["id"].to_pylist())


@pytest.mark.spark
@pytest.mark.usefixtures("assumed_at_minio")
def test_a_run_with_a_role_that_has_exactly_the_documented_policy_works(
    config: Mapping[str, Json], postgres: Postgres, server: Minio, tmp_path: Path
) -> None:
    runtime = Runtime(tmp_path, [replace(LEDGER, table="of_a_role")], config)
    runtime.apply()
    with runtime.open() as session:  # whose transaction is left staged: its successor has something to list and delete
        session.stage_and_die({"id": 1}, commits=False)
    with runtime.open() as session:
        session.transaction({"id": 2})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert " warn" not in outcome.log, outcome.log
    assert ids(config, postgres, server, "of_a_role") == [2]


@pytest.mark.spark
@pytest.mark.usefixtures("assumed_at_minio")
def test_a_bucket_s_role_opens_it_and_the_catalog_s_keys_open_glue(
    config: Mapping[str, Json], server: Minio, glue_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_uri)
    watch, of_catalog = Watch.over(tmp_path), "planted-secret-of-the-catalog"
    storage = {name: config[name] for name in ("bucket", "prefix", "region", "credentials")}
    endpoint = {
        **{name: config[name] for name in ("namespace", "upload_interval", "region")},
        "advanced": {"spark": watch.spark_settings},
        "credentials": {"auth_type": "AWSAccessKey", "awsAccessKeyId": "AKIAGLUE", "awsSecretAccessKey": of_catalog},
        "storage": {"storage_type": "Amazon S3", "endpoint": server.s3.endpoint, **storage},
    }
    runtime = Runtime(watch.work, [replace(LEDGER, table="of_two_accounts")], endpoint, watch.environment)
    runtime.apply()
    with runtime.open() as session:
        session.transaction({"id": 1})
        running = watch.seen()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert exposed([*running, *watch.left()], [of_catalog]) == []
    with server.s3.client() as client:
        found = [each["Key"] for each in client.list_objects_v2(Bucket=config["bucket"])["Contents"]]
    assert any(name.endswith(".parquet") for name in found)
    assert all(name.startswith(f"{PREFIX}/") for name in found)


@pytest.mark.spark
def test_a_run_outlives_its_sessions_whose_tokens_nobody_sees(
    config: Mapping[str, Json],
    postgres: Postgres,
    server: Minio,
    user: Keys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch.over(tmp_path)
    vendor = SessionVendor(server, user, LIFETIME)
    advanced = {"spark": watch.spark_settings}
    runtime = Runtime(
        watch.work, [replace(LEDGER, table="of_sessions")], {**config, "advanced": advanced}, watch.environment
    )
    stored: list[int] = []
    with sts(user, vendor) as role:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", role.uri)
        runtime.apply()
        with runtime.open() as session:
            enough = vendor.expired() + 3
            while vendor.expired() < enough:
                stored.append(len(stored))
                session.transaction({"id": stored[-1]})
            running = watch.seen()
            outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert set(role.sessions) == {"lake"}
    secrets = [user.secret_access_key, postgres.password, *vendor.tokens]
    assert exposed([*running, *watch.left(), ("state", json.dumps(runtime.log).encode())], secrets) == []
    assert ids(config, postgres, server, "of_sessions") == stored


@pytest.mark.usefixtures("assumed_at_minio")
@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_a_role_that_lacks_one_of_the_actions_is_told_which(
    config: Mapping[str, Json], server: Minio, bucket: str, user: Keys, action: str
) -> None:
    statements = documented_statements("s3", bucket=bucket, prefix=PREFIX)
    server.allow(
        user,
        *(
            {**statement, "Action": [other for other in statement["Action"] if other != action]}
            for statement in statements
        ),
    )
    endpoint = parse(config, [])[0]
    with pytest.raises(UserError, match=f"the credentials do not allow {action} "):
        storage_probe.probe(endpoint, data_file_properties(endpoint))


@pytest.mark.usefixtures("assumed_at_minio")
def test_a_role_whose_user_has_another_secret_is_not_assumed(config: Mapping[str, Json]) -> None:
    wrong = {**config["credentials"], "awsSecretAccessKey": "planted-and-wrong"}
    endpoint = parse({**config, "credentials": wrong}, [])[0]
    told = (
        r"the secret access key does not belong to the access key id \(.* request signature we calculated does not "
        r"match .*\)\. Check both in /credentials"
    )
    with pytest.raises(UserError, match=told) as raised:
        data_file_properties(endpoint)
    assert "planted" not in str(raised.value)


@pytest.mark.spark
def test_a_token_of_the_runtime_s_that_has_ended_is_told_and_the_next_one_finishes_what_was_staged(
    config: Mapping[str, Json], postgres: Postgres, server: Minio, user: Keys, tmp_path: Path
) -> None:
    def injected(lasts: timedelta) -> Mapping[str, Json]:
        issued = SessionVendor(server, user, lasts).vend()
        credentials = {
            "auth_type": "AWSIAM",
            "aws_region": server.s3.region,
            "aws_role_arn": ROLE,
            "aws_access_key_id": issued["s3.access-key-id"],
            "aws_secret_access_key": issued["s3.secret-access-key"],
            "aws_session_token": issued["s3.session-token"],
        }
        return {**config, "credentials": credentials}

    collection = replace(LEDGER, table="of_the_runtime")
    first = Runtime(tmp_path, [collection], injected(timedelta(minutes=5)))
    first.apply()
    with first.open() as session:
        session.stage_and_die({"id": 1})
    late = Runtime(tmp_path, [collection], injected(timedelta(seconds=-5)))
    late.log = first.log
    outcome = late.open_and_fail()
    assert outcome.status == 1
    assert "the object store forbids this (ACCESS_DENIED" in outcome.last_log_line
    fresh = Runtime(tmp_path, [collection], injected(timedelta(minutes=5)))
    fresh.log = first.log
    with fresh.open() as session:
        session.transaction({"id": 2})
        assert session.finish().status == 0
    assert ids(config, postgres, server, "of_the_runtime") == [1, 2]
