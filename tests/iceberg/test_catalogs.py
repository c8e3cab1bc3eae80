"""Any catalog places its tables, and gives their files to those who read and write them."""

import re
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from connector.config.catalog import GlueCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.config.storage import GoogleStorage
from connector.host.errors import UserError
from connector.host.refresh import Lease
from connector.iceberg.catalogs.opening import load_opened_table, open_catalog, table_location
from connector.iceberg.catalogs.sql import _url
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import STORE_FILE_IO, keep_access_fresh
from connector.storage.store_kinds import NAMED_STORE
from connector.storage.store_properties import data_file_properties, find_file_addresses
from iceberg.catalog_configs import KEYS, local, on_s3, rest
from support.servers.odd_servers import answering
from support.servers.server_process import free_address
from support.snapshots import check_text


def test_access_to_a_table_that_is_gone_cannot_be_refreshed(tmp_path: Path) -> None:
    config, path = local(tmp_path), TableIdentifier("ns", "orders")
    with open_catalog(config) as catalog:
        catalog.create_namespace("ns")
        expired = Lease(Properties(), expires_at=0, renew_at=0)
        access = keep_access_fresh(path, expired, partial(load_opened_table, catalog, config, path))
        with pytest.raises(UserError, match=r"orders was dropped or renamed while the task was running"):
            access.current()


def test_workers_get_what_files_take_and_no_catalog_secret() -> None:
    catalog = rest("http://host", credential=Secret("client:other"), token=Secret("bearer"))
    assert data_file_properties(on_s3(catalog, s3_endpoint="http://store")) == {
        "py-io-impl": STORE_FILE_IO,
        "s3.region": "us-east-1",
        "s3.endpoint": "http://store",
        "s3.force-virtual-addressing": "false",
        "s3.access-key-id": "keyid",
        "s3.secret-access-key": "planted",
        "s3.session-token": "session",
        "s3.connect-timeout": "10",
        "s3.request-timeout": "60",
    }


def test_properties_of_files_reach_whoever_opens_them_and_others_do_not() -> None:
    catalog = rest("http://host", properties=Properties({"s3.proxy-uri": "http://proxy", "header.X-Key": "planted"}))
    properties = data_file_properties(on_s3(catalog))
    assert properties["s3.proxy-uri"] == "http://proxy"
    assert "header.X-Key" not in properties


def test_a_catalog_knows_which_kind_of_store_the_config_names(tmp_path: Path) -> None:
    """It may name none. Then its catalog chooses the locations of tables."""
    of_google = on_s3(GlueCatalog(), storage=GoogleStorage(bucket="lake"))
    nowhere = EndpointConfig(namespace="ns", catalog=GlueCatalog(), region="us-east-1")
    configs = [on_s3(GlueCatalog()), of_google, nowhere, local(tmp_path, bucket="b")]
    assert [find_file_addresses(config).get(NAMED_STORE) for config in configs] == ["s3", "gs", None, None]


def test_local_workers_need_no_keys(tmp_path: Path) -> None:
    assert data_file_properties(local(tmp_path, credentials=KEYS)) == {"py-io-impl": STORE_FILE_IO}


def test_an_s3_endpoint_is_asked_by_path() -> None:
    with answering(404, "") as server:
        properties = data_file_properties(on_s3(GlueCatalog(), s3_endpoint=server.uri))
        assert not load_file_io(properties).new_input("s3://b/lake/file").exists()
    path, authorization, _ = server.requests[0]
    assert path == "/b/lake/file"
    assert "Credential=keyid/" in authorization


def test_a_new_table_s_location_is_readable_and_ends_in_a_digest_of_its_name() -> None:
    endpoint = on_s3(GlueCatalog(), prefix="lake/flow")
    assert table_location(endpoint, TableIdentifier("ns", "orders")) == "s3://b/lake/flow/ns/orders_1c168adb00d208e4"
    assert (
        table_location(on_s3(rest("http://host")), TableIdentifier("ns", "orders"))
        == "s3://b/ns/orders_1c168adb00d208e4"
    )


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("https://biglake.googleapis.com/iceberg/v1/restcatalog", None),
        ("https://biglake.europe-west4.rep.googleapis.com/iceberg/v1/restcatalog", None),
        ("https://biglake.lake.example/iceberg/googleapis.com", "gs://lake/flow/ns/orders_1c168adb00d208e4"),
        ("https://catalog.lake.example/biglake.googleapis.com", "gs://lake/flow/ns/orders_1c168adb00d208e4"),
    ],
)
def test_biglake_chooses_locations_also_if_the_config_has_credentials_for_the_bucket(
    uri: str, location: str | None
) -> None:
    """It refuses others: "Table location does not match the expected path"."""
    config = EndpointConfig(namespace="ns", catalog=rest(uri), storage=GoogleStorage("lake", "flow"))
    assert table_location(config, TableIdentifier("ns", "orders")) == location


def test_a_local_table_s_location_is_below_the_warehouse(tmp_path: Path) -> None:
    location = table_location(local(tmp_path, prefix="lake"), TableIdentifier("ns", "orders"))
    assert location == f"file://{tmp_path}/lake/ns/orders_1c168adb00d208e4"


@pytest.mark.parametrize(
    ("table", "readable"), [("a b/c#ü?%", "a_b_c____"), ("x" * 300, "x" * 64), ("A-z_0", "A-z_0"), ("../..", "_____")]
)
def test_a_location_holds_no_character_that_a_uri_could_trip_over(table: str, readable: str) -> None:
    location = table_location(on_s3(GlueCatalog()), TableIdentifier("ns", table))
    assert re.fullmatch(f"s3://b/ns/{readable}_[0-9a-f]{{16}}", str(location))


@pytest.mark.parametrize(
    ("one", "other"), [(("ns", "a b"), ("ns", "a_b")), (("n s", "t"), ("n_s", "t")), (("n" * 65, "t"), ("n" * 64, "t"))]
)
def test_no_two_tables_share_a_location(one: TableIdentifier, other: TableIdentifier) -> None:
    assert table_location(on_s3(GlueCatalog()), one) != table_location(on_s3(GlueCatalog()), other)


@pytest.mark.parametrize("has_variable", [False, True])
def test_the_certificates_of_the_machine_are_found_for_a_database(
    has_variable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq would look in a directory of the machine on which psycopg was built."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if has_variable:
        (tmp_path / "machine.pem").touch()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "machine.pem"))
    query = _url(SqlCatalog("postgresql://flow@db/lake?sslrootcert=system")).query
    assert query["sslmode"] == "verify-full"
    trusted = Path(str(query["sslrootcert"]))
    assert trusted == tmp_path / "machine.pem" if has_variable else "BEGIN CERTIFICATE" in trusted.read_text()


@pytest.mark.parametrize(
    "parameter",
    [
        "sslmode=planned",
        "sslmode=require&sslrootcert=system",
        "connect_timeout=soon",
        "keepalives=on",
        "service=nowhere",
        "require_auth=none,x",
    ],
)
def test_a_parameter_with_a_wrong_value_is_named(parameter: str) -> None:
    catalog = SqlCatalog(f"postgresql://flow@{free_address()}/lake?{parameter}")
    with pytest.raises(UserError, match=r"cannot be reached with these parameters: .*(invalid|bad|not found)") as error:
        open_catalog(EndpointConfig(namespace="ns", catalog=catalog, credentials=KEYS, bucket="b", region="us-east-1"))
    if parameter == "sslmode=planned":
        text = re.sub(r"127.0.0.1:\d+", "…", str(error.value))
        check_text("catalog_errors", "SQL: a parameter with a wrong value", text)
