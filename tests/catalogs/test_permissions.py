"""The documented policy is enough, and none of it is too much."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.table import Table

from connector.checks import storage_probe
from connector.checks.steps import Skipped
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.commits.missing_files import find_missing_files
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.store_properties import data_file_properties
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.amazon import hidden_objects
from support.servers.endpoint_configs import on_s3
from support.servers.policy import documented_statements
from support.servers.postgres import Postgres
from support.servers.s3_server import Keys, S3Server
from support.sessions.runtime import LEDGER, Runtime
from support.tables.local_tables import ID_ONLY

pytestmark = pytest.mark.catalog


PREFIX: Final = "lake/flow"
PATH: Final = TableIdentifier("of_whom_may_list_little", "orders")
WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def user(s3_server: S3Server) -> Keys:
    return s3_server.new_user()


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The server as users see it who may not list all of a bucket."""
    with hidden_objects(s3_server) as seen:
        yield replace(s3_server, endpoint=seen.uri)


@pytest.fixture
def config(postgres: Postgres, s3: S3Server, bucket: str, user: Keys) -> Mapping[str, Json]:
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    keys = {
        "auth_type": "AWSAccessKey",
        "awsAccessKeyId": user.access_key_id,
        "awsSecretAccessKey": user.secret_access_key,
    }
    return {**on_s3(s3, bucket, NAMESPACE, catalog), "credentials": keys, "prefix": PREFIX}


def probe(config: Mapping[str, Json]) -> str | Skipped:
    endpoint = parse(config, [])[0]
    return storage_probe.probe(endpoint, data_file_properties(endpoint))


@pytest.mark.spark
def test_a_run_with_exactly_the_documented_policy_works(
    config: Mapping[str, Json], s3_server: S3Server, bucket: str, user: Keys, tmp_path: Path
) -> None:
    s3_server.allow(user, bucket, *documented_statements("s3", bucket=bucket, prefix=PREFIX))
    assert probe(config) == f"s3://{bucket}/{PREFIX}"
    runtime = Runtime(tmp_path, [replace(LEDGER, table="with_least_privilege")], config)
    # Its transaction is left staged: its successor has something to list and delete.
    with runtime.open(publish=True) as session:
        session.stage_and_die({"id": 1}, commits=False)
    for number in (2, 3):
        with runtime.open() as session:
            session.transaction({"id": number})
            outcome = session.finish()
        assert outcome.status == 0
    assert " warn" not in outcome.log, outcome.log


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_without_one_of_its_actions_validate_names_it(
    config: Mapping[str, Json], s3_server: S3Server, bucket: str, user: Keys, action: str
) -> None:
    statements = documented_statements("s3", bucket=bucket, prefix=PREFIX)
    without = [
        {**statement, "Action": [other for other in statement["Action"] if other != action]} for statement in statements
    ]
    s3_server.allow(user, bucket, *without)
    with pytest.raises(UserError, match=action):
        probe(config)


@dataclass(frozen=True)
class Lost:
    """A table with two staged files, of which one is gone."""

    table: Table
    staged: Sequence[StagedCommit]
    gone: str


@pytest.fixture
def lost(config: Mapping[str, Json], s3_server: S3Server, bucket: str, user: Keys) -> Iterator[Lost]:
    s3_server.allow(user, bucket, *documented_statements("s3", bucket=bucket, prefix=PREFIX))
    endpoint = parse(config, [])[0]
    with open_catalog(endpoint) as catalog, translate_errors(endpoint), s3_server.client() as client:
        catalog.create_namespace(PATH[0])
        table = catalog.create_table(PATH, ID_ONLY, location=table_location(endpoint, PATH))
        staged = [stage(catalog, PATH, WRITER, number) for number in (1, 2)]
        [gone] = staged[0].locations
        client.delete_object(Bucket=bucket, Key=gone.removeprefix(f"s3://{bucket}/"))
        yield Lost(table, staged, gone)


def test_a_staged_file_that_is_gone_is_named(lost: Lost) -> None:
    assert [missing.location for missing in find_missing_files(lost.table, lost.staged)] == [lost.gone]


def test_without_the_permission_to_list_the_error_names_it(
    lost: Lost, s3_server: S3Server, bucket: str, user: Keys
) -> None:
    statements = documented_statements("s3", bucket=bucket, prefix=PREFIX)
    s3_server.allow(user, bucket, *(statement for statement in statements if statement["Action"] != ["s3:ListBucket"]))
    with pytest.raises(UserError, match=r"during ListObjectsV2 .* allow to read, write, list and delete objects there"):
        find_missing_files(lost.table, lost.staged)
