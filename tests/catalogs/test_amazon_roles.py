"""A role that is assumed again and again, in front of Amazon S3 Tables and of Glue: its keys live for seconds."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.types import LongType

from connector.config.settings import parse
from connector.evolution.plan_changes import plan_changes
from connector.evolution.target import NewColumn, Target
from connector.host.errors import InvalidConfigError, UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.iceberg.commits import commit
from connector.iceberg.loaded_tables import find_own_tables
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from connector.rpc.validate import validate
from fixtures.collection import NAMESPACE
from protocol import request
from protocol.flow import WHOLE_RANGE, Json, ValidateBinding
from support.bindings import ID, collection, projection
from support.rows.staged_files import stage
from support.servers.amazon import TABLE_BUCKET, S3Tables, Sts, in_table_buckets, role_credentials, s3_tables, sts
from support.servers.fault_proxy import FaultProxy, fault_proxy
from support.servers.key_vendor import KeyVendor, key_vendor
from support.servers.policy import documented_actions_of_commands, documented_statement_of_s3_tables
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import Keys, S3Server
from support.sessions.leftovers import Watch, exposed
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog


LIFETIME: Final = 10.0  # seconds
PAUSE: Final = 0.5  # seconds, between transactions: more of them in a lifetime show nothing new, and take the processor


@pytest.fixture
def vendor(s3_server: S3Server) -> Iterator[KeyVendor]:
    with key_vendor(s3_server, LIFETIME) as running:
        yield running


@pytest.fixture
def role(vendor: KeyVendor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    with sts(Keys.drawn(), vendor) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", running.uri)
        yield running


@pytest.fixture
def tables(rest_on_s3: RestCatalogOnS3, vendor: KeyVendor, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Tables]:
    with s3_tables(rest_on_s3.uri, vendor.secret_of, rest_on_s3.s3.new_bucket("--table-s3")) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3TABLES", running.uri)
        yield running


def config(role: Sts, **credentials: Json) -> Mapping[str, Json]:
    return {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "credentials": {
            **role_credentials(role.user),
            **credentials,
        },
        "s3_endpoint": role.vendor.s3.endpoint,
        "catalog": {"catalog_type": "Amazon S3 Tables", "table_bucket_arn": TABLE_BUCKET},
    }


@pytest.fixture
def files(s3_server: S3Server) -> Iterator[FaultProxy]:
    """The S3 server as one that has nothing but table buckets."""
    with fault_proxy(s3_server.endpoint) as running:
        running.choose = in_table_buckets
        yield running


@pytest.mark.spark
def test_a_run_on_s3_tables_outlives_its_role_s_keys_again_and_again(
    tables: S3Tables,
    role: Sts,
    vendor: KeyVendor,
    files: FaultProxy,
    rest_on_s3: RestCatalogOnS3,
    tmp_path: Path,
) -> None:
    ledger = replace(LEDGER, table="on_s3_tables")
    watch = Watch.over(tmp_path)
    endpoint = {**config(role), "s3_endpoint": files.uri, "advanced": {"spark": watch.spark_settings}}
    runtime = Runtime(watch.work, [ledger], endpoint, watch.environment)
    stored: list[int] = []
    with runtime.open(publish=True) as session:
        enough = len(vendor.expired) + 3
        while len(vendor.expired) < enough:
            stored.append(len(stored))
            session.transaction({"id": stored[-1], "note": "still here"})
            time.sleep(PAUSE)
        running = watch.seen()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert tables.signed > len(stored)
    assert set(role.sessions) == {"lake"}
    secrets = [keys.secret_access_key for keys in (role.user, *vendor.vended)]
    assert exposed([*running, *watch.left(), ("state", json.dumps(runtime.log).encode())], secrets) == []
    assert files.seen
    assert files.fired == [], "it has listed or deleted objects"
    with rest_on_s3.client() as catalog:
        rows = catalog.load_table((NAMESPACE, ledger.table)).scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == stored


def test_a_backfill_replaces_a_table_on_s3_tables_by_what_the_documented_policy_allows(
    tables: S3Tables, role: Sts
) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "replaced")
    columns = (NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True),)
    uuids = []
    endpoint = parse(config(role), [])[0]
    with open_catalog(endpoint) as catalog:
        for backfill in range(2):
            target = Target(path, Owner("acmeCo/task", f"replaced.v{backfill}"), columns, {}, replaces=backfill > 0)
            evolve(catalog, path, None, partial(plan_changes, target=target), alterer())
            uuids.append(catalog.load_table(path).metadata.table_uuid)
        writer = WriterId("acmeCo/task", "replaced.v1", WHOLE_RANGE.key_range)
        commit.commit_all_or_raise(catalog, [stage(catalog, path, writer, 1, 2)])
        assert ids_of(catalog, path) == [1, 2]
    assert uuids[0] == uuids[1]
    used = {f"s3tables:{action}" for action in tables.actions}
    of_new_tables = {"s3tables:DeleteTable"}  # which a backfill makes if the partitions need a new column
    of_a_task = set(documented_statement_of_s3_tables()["Action"])
    assert used | of_new_tables == of_a_task
    with open_catalog(endpoint) as catalog:
        own = find_own_tables(catalog, endpoint, path.namespace, writer.materialization)
        assert [found for found, _ in own] == [path]
    assert {f"s3tables:{action}" for action in tables.actions} - of_a_task == documented_actions_of_commands("s3tables")


CAPITALS: Final = {"preserve": "'createdAt', 'Size'", "lowercase": None, "uppercase": "'CREATEDAT', 'SIZE'"}


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("case", CAPITALS)
def test_new_columns_that_athena_cannot_read_are_warned_of(
    role: Sts, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    fields = (projection(name, "string") for name in ("createdAt", "Size", "Named"))
    names = {"id": {"column": "id"}, "Named": {"column": "named"}}
    bound = collection(ID, *fields, projection("Void", "null"))
    proposed = ValidateBinding({"table": "new"}, bound, field_config=names)
    endpoint = {**config(role), "advanced": {"field_name_case": case}}
    validate(request.Validate("acmeCo/task", config=endpoint, bindings=(proposed,)))
    warnings = [record.getMessage() for record in caplog.records if "capital letters" in record.getMessage()]
    assert len(warnings) == (CAPITALS[case] is not None)
    assert all(f"names: {CAPITALS[case]}. Amazon S3 Tables" in warning for warning in warnings)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("somebody else's role", {"external_id": "of somebody else"}),
        ("wrong secret", {"awsSecretAccessKey": "planted-and-wrong"}),
    ],
)
def test_a_role_that_cannot_be_assumed_is_named(role: Sts, name: str, changed: Json) -> None:
    endpoint = parse(config(role, **changed), [])[0]
    with pytest.raises(UserError) as raised, translate_errors(endpoint):
        open_catalog(endpoint)
    assert "planted" not in str(raised.value)
    check_text("catalog_errors", f"AWS STS: {name}", str(raised.value))


@pytest.mark.usefixtures("tables")
def test_a_signature_that_is_not_accepted_is_an_error_that_names_the_catalog(role: Sts) -> None:
    keys = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "nobody", "awsSecretAccessKey": "planted"}
    endpoint = parse({**config(role), "credentials": keys}, [])[0]
    with pytest.raises(UserError, match=r"Amazon S3 Tables at .*/iceberg says that the secret access key does not"):
        open_catalog(endpoint)


@pytest.mark.parametrize(("service", "is_accepted"), [("s3tables", True), ("glue", False)])
def test_a_rest_catalog_may_be_one_to_which_requests_are_signed(
    tables: S3Tables, vendor: KeyVendor, service: str, is_accepted: bool
) -> None:
    vended = vendor.vend()
    signing = {"rest.sigv4-enabled": "true", "rest.signing-name": service, "rest.signing-region": "us-east-1"}
    catalog = {"catalog_type": "Iceberg REST Server", "uri": f"{tables.uri}/iceberg", "warehouse": TABLE_BUCKET}
    keys = {
        "auth_type": "AWSAccessKey",
        "awsAccessKeyId": vended["s3.access-key-id"],
        "awsSecretAccessKey": vended["s3.secret-access-key"],
    }
    config = {"namespace": NAMESPACE, "credentials": keys, "catalog": {**catalog, "properties": signing}}
    endpoint = parse(config, [])[0]
    if is_accepted:
        with open_catalog(endpoint) as opened:
            assert not opened.namespace_exists("nowhere")
    else:
        with pytest.raises(UserError, match="signature does not match"):
            open_catalog(endpoint)


def test_who_has_nothing_to_sign_with_hears_so() -> None:
    catalog = {"catalog_type": "Iceberg REST Server", "uri": "https://host/iceberg", "warehouse": "lake"}
    config = {"namespace": "ns", "catalog": {**catalog, "properties": {"rest.sigv4-enabled": "true"}}}
    with pytest.raises(InvalidConfigError) as raised:
        parse(config, [])
    assert str(raised.value).splitlines() == [
        "/credentials: is required by rest.sigv4-enabled unless the feature flag use_machine_credentials is on",
        "/catalog/properties/rest.signing-region: is required by rest.sigv4-enabled unless /region is set",
    ]
