"""What opens a table's files: of all that a config and a catalog say, what the writers need, and until when it
holds."""

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Final, cast

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.storage.file_access import (
    SHORTEST_LIFE,
    STORE_FILE_IO,
    access_to,
    add_expiry,
    file_properties,
    keep_addresses,
)
from connector.storage.file_io import StoreFileIO, open_file_io
from support.servers.odd_servers import answering
from support.snapshots import check_text

ARROW = {"py-io-impl": STORE_FILE_IO}
KEY = {"s3.access-key-id": "id", "s3.secret-access-key": "planted"}
IN_CHINA = {
    "adls.account-name": "lake",
    "adls.blob-storage-authority": ".blob.core.chinacloudapi.cn",
    "adls.dfs-storage-authority": ".dfs.core.chinacloudapi.cn",
    "adls.sas-token": "sig",
}


def table(location: str, properties: dict[str, str]) -> Table:
    io = load_file_io({**ARROW, **properties})
    return cast(Table, SimpleNamespace(io=io, location=lambda: location, name=lambda: ("ns", "t")))


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ([{"uri": "http://host", "token": "planted", "credential": "planted", "header.X-Key": "planted"}], {}),
        ([{"py-io-impl": "somebody.elses.FileIO", "s3.retry-strategy-impl": "somebody.elses.Retry"}], {}),
        ([{"s3.region": "one"}, {"s3.region": "two"}], {"s3.region": "two"}),
        ([{"s3.region": "one"}, {"client.region": "two"}], {"s3.region": "two"}),
        ([{"s3.region": "one", "client.region": "two"}], {"s3.region": "one"}),
        (
            [{**KEY, "s3.session-token": "of id"}, KEY | {"s3.access-key-id": "other"}],
            KEY | {"s3.access-key-id": "other"},
        ),
        ([{"s3.path-style-access": "true"}], {"s3.force-virtual-addressing": "false"}),
        ([{"s3.endpoint": "http://store"}], {"s3.endpoint": "http://store", "s3.region": "us-east-1"}),
        ([{"gcs.oauth2.token": "planted"}], {"gcs.oauth2.token": "planted"}),
        (
            [{"adls.account-key": "planted"}, {"adls.sas-token.lake.dfs.core.windows.net": "sig"}],
            {"adls.account-name": "lake", "adls.sas-token": "sig"},
        ),
        ([{"adls.sas-token.lake.blob.core.chinacloudapi.cn": "sig"}], IN_CHINA),
        (
            [{"adls.sas-token.lake.dfs.core.chinacloudapi.cn": "sig"}, {"s3.region": "one"}],
            {**IN_CHINA, "s3.region": "one"},
        ),
        (
            [{"adls.dfs-storage-authority": "ours"}, {"adls.sas-token.lake.dfs.core.chinacloudapi.cn": "sig"}],
            {**IN_CHINA, "adls.dfs-storage-authority": "ours"},
        ),
    ],
)
def test_the_last_word_on_each_property_counts_and_others_are_left_out(
    sources: list[dict[str, str]], found: dict[str, str]
) -> None:
    assert file_properties(*sources) == {**found, **ARROW}


GOOGLE = {"gcs.oauth2.token": "planted"}
AZURE = {"adls.account-name": "lake", "adls.sas-token": "planted"}
AZURE_ELSEWHERE = {
    "adls.account-name": "theirs",
    "adls.blob-storage-authority": "theirs",
    "adls.blob-storage-scheme": "http",
    "adls.dfs-storage-authority": "theirs",
    "adls.dfs-storage-scheme": "http",
}


@pytest.mark.parametrize(
    ("own", "sent", "found"),
    [
        (GOOGLE, {"gcs.service.host": "http://theirs"}, GOOGLE),
        (
            {**GOOGLE, "gcs.service.host": "http://ours"},
            {"gcs.service.host": "http://theirs"},
            {**GOOGLE, "gcs.service.host": "http://ours"},
        ),
        (AZURE, AZURE_ELSEWHERE, AZURE),
        (AZURE, {"adls.sas-token.theirs.dfs.their.cloud": "planted"}, AZURE),
        (
            {**AZURE, "adls.dfs-storage-authority": "ours"},
            AZURE_ELSEWHERE,
            {**AZURE, "adls.dfs-storage-authority": "ours"},
        ),
        (
            {"adls.account-name": "lake", "adls.machine-credentials": ""},
            AZURE_ELSEWHERE,
            {"adls.account-name": "lake", "adls.machine-credentials": ""},
        ),
        (
            AZURE,
            {**AZURE_ELSEWHERE, "adls.account-key": "planted"},
            {**AZURE, "adls.account-key": "planted"},
        ),
    ],
)
def test_a_sign_in_of_the_config_is_used_with_no_address_that_a_server_has_sent(
    own: dict[str, str], sent: dict[str, str], found: dict[str, str]
) -> None:
    assert keep_addresses(file_properties(own, sent), own) == {**found, **ARROW}


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (GOOGLE, {"gcs.oauth2.token": "vended", "gcs.service.host": "http://theirs"}),
        (AZURE, {**AZURE_ELSEWHERE, "adls.sas-token": "vended"}),
        ({}, AZURE_ELSEWHERE),
        (GOOGLE, AZURE_ELSEWHERE),
        (KEY, {"s3.endpoint": "http://theirs", "s3.proxy-uri": "http://theirs"}),
    ],
)
def test_other_addresses_that_a_server_has_sent_are_used(own: dict[str, str], sent: dict[str, str]) -> None:
    """Only the server may know the endpoint of an S3 store whose keys the config has."""
    found = keep_addresses(file_properties(own, sent), own)
    assert found == file_properties(own, sent)
    assert sent.items() <= found.items()


def test_access_ends_when_its_token_does() -> None:
    ends = int(time.time()) + 3600
    access = access_to(table("s3://b/t", {**KEY, "s3.session-token-expires-at-ms": f"{ends}000"}))
    assert access.expires_at == ends
    assert KEY.items() <= dict(access.value).items()
    assert access_to(table("s3://b/t", KEY)).expires_at is None


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://b/t", "s3.session-token"),
        ("gs://b/t", "gcs.oauth2.token"),
        ("abfss://c@lake.host/t", "adls.sas-token.lake.host"),
    ],
)
def test_a_token_that_was_handed_out_without_an_end_is_not_used_for_longer_than_is_certain(
    location: str, name: str
) -> None:
    before = time.time()
    access = access_to(table(location, add_expiry({**KEY, name: "planted"})))
    assert access.expires_at is not None
    assert before + SHORTEST_LIFE - 1 <= access.expires_at <= time.time() + SHORTEST_LIFE
    assert add_expiry(KEY) == KEY


# Such as the first millisecond of the year 10000, a number that no float can be, and one that int() refuses.
NO_TIMES: Final = ["", "0", "-1", "never", "2026-01-01T00:00:00Z", "253402300800000", "9" * 400, "9" * 5000]


@pytest.mark.parametrize("end", NO_TIMES, ids=lambda end: end[:20])
@pytest.mark.parametrize(
    ("location", "token", "ends"),
    [
        ("s3://b/t", "s3.session-token", "s3.session-token-expires-at-ms"),
        ("gs://b/t", "gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
        ("abfss://c@lake.host/t", "adls.sas-token.lake.host", "adls.sas-token-expires-at-ms.lake.host"),
    ],
)
def test_an_end_that_is_no_time_is_none(location: str, token: str, ends: str, end: str) -> None:
    before = time.time()
    access = access_to(table(location, add_expiry({**KEY, token: "planted", ends: end})))
    assert access.expires_at is not None
    assert before + SHORTEST_LIFE - 1 <= access.expires_at <= time.time() + SHORTEST_LIFE


@pytest.mark.parametrize("end", NO_TIMES, ids=lambda end: end[:20])
def test_a_key_without_a_token_does_not_expire(end: str) -> None:
    """Some catalogs send an end with keys that have none."""
    assert access_to(table("s3://b/t", add_expiry({**KEY, "s3.session-token-expires-at-ms": end}))).expires_at is None


@pytest.mark.parametrize("end", NO_TIMES, ids=lambda end: end[:20])
def test_a_bucket_of_google_is_opened_with_a_token_whose_end_is_no_time(end: str) -> None:
    """It may come from the catalog's own config."""
    io = open_file_io(file_properties({"gcs.oauth2.token": "planted", "gcs.oauth2.token-expires-at": end}))
    assert isinstance(io, StoreFileIO)
    assert io.arrow.fs_by_scheme("gs", "b").type_name == "gcs"


@pytest.mark.parametrize(
    "location",
    ["s3://b/t", "s3a://b/t", "gs://b/t"],
)
def test_without_keys_nothing_is_written_with_those_of_the_machine(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the machine")
    with pytest.raises(UserError) as raised:
        access_to(table(location, {"s3.region": "us-east-1"}))
    check_text("catalog_errors", f"a catalog that vends no keys: {location}", str(raised.value))


@pytest.mark.parametrize(
    ("location", "sent"),
    [
        ("s3://b/t", {"s3.anonymous": "false"}),
        ("s3://b/t", {"s3.anonymous": ""}),
        ("s3://b/t", {"s3.access-key-id": "", "s3.secret-access-key": ""}),
        ("gs://b/t", {"gcs.oauth2.token": ""}),
        ("abfss://c@lake.host/t", {"adls.sas-token": ""}),
    ],
)
def test_a_sign_in_without_a_value_is_none(location: str, sent: dict[str, str]) -> None:
    with pytest.raises(UserError, match="neither the config nor the catalog has credentials for its files"):
        access_to(table(location, sent))


@pytest.mark.parametrize("scheme", ["s3", "s3a", "oss"])
@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"s3.anonymous": "false"},
        {"s3.anonymous": "true"},
        {"s3.access-key-id": "", "s3.secret-access-key": ""},
        {"s3.session-token": "planted"},
    ],
)
def test_a_store_that_is_opened_without_keys_gets_no_signature_of_the_machine_s(
    scheme: str, sent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    with answering(404, "") as store:
        files = table(f"{scheme}://b/t", {**sent, "s3.endpoint": store.uri, "s3.region": "us-east-1"}).io
        with pytest.raises(FileNotFoundError):
            files.new_input(f"{scheme}://b/t/1.json").open(seekable=False).read()
    assert {authorization for _, authorization, _ in store.requests} == {""}


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        ({}, {}),
        ({}, {"adls.client-secret": ""}),
        ({"adls.account-key": "b3Vycw=="}, {"adls.account-key": ""}),
        ({"adls.account-key": "b3Vycw=="}, {"adls.sas-token.lake.dfs.theirs": ""}),
        ({"adls.machine-credentials": ""}, {"adls.sas-token.lake.dfs.theirs": ""}),
    ],
)
def test_a_store_of_azure_is_not_opened_without_a_sign_in(own: dict[str, str], sent: dict[str, str]) -> None:
    own = {"adls.account-name": "lake", **own}
    files = table("abfss://c@lake.host/t", file_properties(own, sent)).io
    with pytest.raises(UserError) as raised:
        files.new_input("abfss://c@lake.host/t/1.json").exists()
    check_text("catalog_errors", "a catalog that vends nothing that signs in to Azure", str(raised.value))


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("file:///data/t", {}),
        ("s3://b/t", {"s3.anonymous": "true"}),
        ("s3://b/t", {"s3.anonymous": "True"}),
        ("abfss://c@lake.host/t", {"adls.machine-credentials": ""}),
    ],
)
def test_other_places_need_no_key(location: str, properties: dict[str, str]) -> None:
    assert access_to(table(location, properties)).expires_at is None


def test_who_writes_a_table_s_files_gets_what_opens_them_and_nothing_of_the_catalog_s() -> None:
    of_catalog = {"uri": "http://host", "token": "planted", "credential": "planted", "header.Authorization": "planted"}
    access = access_to(table("s3://b/t", {**KEY, "s3.region": "us-east-1", "warehouse": "lake", **of_catalog}))
    assert dict(access.value) == {**KEY, "s3.region": "us-east-1", **ARROW}


def test_access_shows_no_secret() -> None:
    assert "planted" not in repr(access_to(table("s3://b/t", KEY)))


OPENED_WITH_KEYS: Final = """
import sys
from connector.config.settings import parse
from connector.session import open_session, session_threads
from connector.iceberg.catalogs import rest, rest_errors
from connector.storage.store_properties import data_file_properties
keys = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "an-access-key", "awsSecretAccessKey": "a-secret-access-key"}
catalog = {"catalog_type": "Iceberg REST Server", "uri": "http://host", "warehouse": "lake"}
store = {"credentials": keys, "bucket": "bucket", "region": "us-east-1", "namespace": "shop"}
config, _ = parse({**store, "catalog": catalog}, [])
assert data_file_properties(config)["s3.access-key-id"] == "an-access-key"
print(*sys.modules)
"""


def test_a_session_whose_config_has_the_keys_does_not_load_boto3() -> None:
    """It takes a tenth of the time to open a session."""
    ran = subprocess.run([sys.executable, "-c", OPENED_WITH_KEYS], check=True, capture_output=True, text=True)
    assert not {"boto3", "botocore.session", "botocore.auth"} & {*ran.stdout.split()}
