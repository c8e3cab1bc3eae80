"""Before anything is written, a probe says whether the place for data files can be used, and if not, why and what to
do."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace
from pyiceberg.io import load_file_io

from connector.checks import s3_probe, storage_probe
from connector.checks.steps import Skipped
from connector.config.catalog import GlueCatalog, LocalCatalog, RestCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.storage import HdfsStorage, LocalFiles, Storage
from connector.host.errors import RetryableError, UserError
from connector.storage.file_access import file_properties
from connector.storage.store_properties import data_file_properties
from support.repository import REPOSITORY
from support.servers.odd_servers import answering, silent
from support.servers.s3_server import Keys, S3Server, credentials
from support.servers.server_process import free_address
from support.snapshots import check_text


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def right(s3_server: S3Server, bucket: str) -> EndpointConfig:
    """A config that works."""
    return EndpointConfig(
        namespace="ns",
        catalog=GlueCatalog(),
        credentials=credentials(s3_server.root),
        bucket=bucket,
        prefix="lake/flow",
        region=s3_server.region,
        s3_endpoint=s3_server.endpoint,
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_probe, "TIME_LIMITS", {"connect_timeout": 0.2, "read_timeout": 0.2})


def probe(config: EndpointConfig) -> str | Skipped:
    return storage_probe.probe(config, data_file_properties(config))


def keys_in(server: S3Server, bucket: str) -> list[str]:
    with server.client() as client:
        return [found["Key"] for found in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


def put(server: S3Server, bucket: str, *keys: str) -> None:
    with server.client() as client:
        for key in keys:
            client.put_object(Bucket=bucket, Key=key, Body=b"")


REST: Final = RestCatalog("http://catalog", "lake")
ALL: Final = ("s3:PutObject", "s3:GetObject", "s3:DeleteObject")
Change: TypeAlias = Callable[[S3Server, str], Mapping[str, Any]]


def allowed(*actions: str) -> Change:
    return lambda server, bucket: {"credentials": credentials(server.new_user_of(bucket, *actions))}


# The bucket


@pytest.mark.parametrize("prefix", ["", "lake/flow"])
@pytest.mark.parametrize("user", [ALL, (*ALL, "s3:ListBucket")], ids=["who may not list", "who may list"])
def test_a_bucket_that_can_be_used_is_left_as_it_was(
    s3_server: S3Server, bucket: str, right: EndpointConfig, prefix: str, user: tuple[str, ...]
) -> None:
    put(s3_server, bucket, "lake/flow/table")
    probe(replace(right, prefix=prefix, **allowed(*user)(s3_server, bucket)))
    assert keys_in(s3_server, bucket) == ["lake/flow/table"]


def test_an_endpoint_without_a_scheme_is_one_of_https(right: EndpointConfig) -> None:
    with pytest.raises(UserError, match="has no secure connection"):
        probe(replace(right, s3_endpoint=right.s3_endpoint.removeprefix("http://")))


def test_what_killed_probes_have_left_behind_is_deleted_and_nothing_else(
    s3_server: S3Server, bucket: str, right: EndpointConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind = f"lake/flow/{storage_probe.new_name()}"
    others = ["lake/flow/materialize-iceberg-probe-mine", "lake/flow/table", storage_probe.new_name()]
    put(s3_server, bucket, left_behind, *others)
    probe(right)
    assert set(keys_in(s3_server, bucket)) == {left_behind, *others}, "another probe may still be under way"
    monkeypatch.setattr(storage_probe, "LONGEST_PROBE", timedelta(seconds=-1))
    probe(right)
    assert set(keys_in(s3_server, bucket)) == set(others)


REFUSALS: Final[Mapping[str, tuple[Change, type[Exception]]]] = {
    "unknown key": (lambda *_: {"credentials": credentials(Keys("nobody", "planted"))}, UserError),
    "wrong secret": (
        lambda server, _: {"credentials": credentials(dataclasses.replace(server.root, secret_access_key="planted"))},
        UserError,
    ),
    "wrong token": (lambda server, _: {"credentials": credentials(server.root, "planted")}, UserError),
    "no such bucket": (lambda *_: {"bucket": "no-such-bucket"}, UserError),
    "no bucket's name": (lambda *_: {"bucket": "no bucket!"}, UserError),
    "may only read": (allowed("s3:GetObject", "s3:ListBucket"), UserError),
    "may only write": (allowed("s3:PutObject"), UserError),
    "may not read": (allowed("s3:PutObject", "s3:DeleteObject"), UserError),
    "may not delete": (allowed("s3:PutObject", "s3:GetObject"), UserError),
    "wrong region": (lambda *_: {"region": "eu-west-1"}, UserError),
    "no region's name": (lambda *_: {"region": "eu west 1"}, UserError),
    "nobody listens": (lambda *_: {"s3_endpoint": f"http://{free_address()}"}, RetryableError),
    "no such host": (lambda *_: {"s3_endpoint": "http://no-such-host.invalid"}, RetryableError),
    "no https": (lambda server, _: {"s3_endpoint": server.endpoint.replace("http:", "https:")}, UserError),
    "no address": (lambda *_: {"s3_endpoint": "http://:wrong"}, UserError),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_real_object_store_refuses_is_explained(
    s3_server: S3Server, bucket: str, right: EndpointConfig, name: str
) -> None:
    change, kind = REFUSALS[name]
    config = replace(right, **change(s3_server, bucket))
    with pytest.raises(kind) as raised:
        probe(config)
    assert "planted" not in str(raised.value)
    check_text("storage_errors", name, str(raised.value), {bucket: "BUCKET", config.s3_endpoint: "ENDPOINT"})


def error(code: str, message: str) -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


HOME = {"x-amz-bucket-region": "eu-west-1"}
ANSWERS: Final[Mapping[str, tuple[int, str, Mapping[str, str], type[Exception]]]] = {
    "redirect": (301, error("PermanentRedirect", "Use another endpoint."), HOME, UserError),
    "redirect to nowhere": (301, "", {}, UserError),
    "signed for another region": (400, error("AuthorizationHeaderMalformed", "Wrong region."), HOME, UserError),
    "late session": (400, error("ExpiredToken", "The provided token has expired."), {}, UserError),
    "clock": (403, error("RequestTimeTooSkewed", "The difference is too large."), {}, UserError),
    "any other refusal": (400, error("InvalidRequest", "No."), {}, UserError),
    "busy": (503, error("SlowDown", "Reduce your request rate."), {}, RetryableError),
    "a web server": (404, "<html>not found</html>", {}, UserError),
    "a web server that takes anything": (200, "welcome", {}, RetryableError),
    "a server that takes anything and keeps nothing": (200, "", {}, UserError),
    "a gateway": (502, "<html>bad gateway</html>", {}, RetryableError),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_else_a_server_may_answer_is_explained(bucket: str, right: EndpointConfig, name: str) -> None:
    status, body, headers, kind = ANSWERS[name]
    with answering(status, body, headers) as server, pytest.raises(kind) as raised:
        probe(replace(right, s3_endpoint=server.uri))
    said = re.sub("probe-[0-9a-f]{32}", "probe-…", str(raised.value))
    check_text("storage_errors", name, said, {bucket: "BUCKET", server.uri: "ENDPOINT"})


@pytest.mark.usefixtures("impatient")
def test_a_store_that_never_answers_is_not_waited_for(bucket: str, right: EndpointConfig) -> None:
    with silent() as uri, pytest.raises(RetryableError) as raised:
        probe(replace(right, s3_endpoint=uri))
    check_text("storage_errors", "silence", str(raised.value), {bucket: "BUCKET", uri: "ENDPOINT"})


# What the catalog decides


@pytest.mark.parametrize("absent", [{"credentials": None}, {"bucket": ""}])
def test_where_the_catalog_gives_each_table_its_place_or_keys_nothing_is_tried(
    right: EndpointConfig, absent: Mapping[str, Any]
) -> None:
    with answering(400, "") as server:
        assert isinstance(probe(replace(right, catalog=REST, s3_endpoint=server.uri, **absent)), Skipped)
    assert server.requests == []


def test_what_the_catalogs_server_says_of_the_object_store_has_a_say(right: EndpointConfig) -> None:
    with answering(400, error("InvalidRequest", "No.")) as server:
        overridden = {**data_file_properties(right), "s3.endpoint": server.uri}
        with pytest.raises(UserError, match=f"the object store at {server.uri} refuses this"):
            storage_probe.probe(replace(right, catalog=REST), overridden)


@pytest.mark.parametrize(
    ("settings", "host", "is_signed"),
    [
        ({}, "store.test/lake", True),
        ({"s3.force-virtual-addressing": "true"}, "lake.store.test", True),
        ({"s3.anonymous": "true"}, "store.test/lake", False),
    ],
)
def test_the_store_is_addressed_as_the_tasks_do(settings: Mapping[str, str], host: str, is_signed: bool) -> None:
    with answering(400, error("InvalidRequest", "No.")) as proxy:
        keys = {"s3.access-key-id": "id", "s3.secret-access-key": "secret", "s3.region": "eu-west-1"}
        properties = {**keys, "s3.endpoint": "http://store.test", "s3.proxy-uri": proxy.uri, **settings}
        with s3_probe.open_bucket("lake", "flow", properties) as opened, pytest.raises(UserError, match="refuses this"):
            storage_probe.try_place(opened)
    path, authorization, _ = proxy.requests[0]
    assert path.startswith(f"http://{host}/flow/materialize-iceberg-probe-")
    assert bool(authorization) == is_signed


@pytest.mark.parametrize(
    ("settings", "host"), [({}, "store.test/lake"), ({"s3.force-virtual-addressing": "true"}, "lake.store.test")]
)
def test_data_files_are_addressed_alike(settings: Mapping[str, str], host: str) -> None:
    with answering(400, error("InvalidRequest", "No.")) as proxy:
        keys = {"s3.access-key-id": "id", "s3.secret-access-key": "secret"}
        place = {"s3.endpoint": "http://store.test", "s3.proxy-uri": proxy.uri}
        io = load_file_io(file_properties({**keys, **place, **settings}))
        with pytest.raises(OSError, match="No"):
            io.new_output("s3://lake/flow/file").create(overwrite=True).close()
    assert proxy.requests[0][0].startswith(f"http://{host}/flow/file")


# Other stores


def elsewhere(place: Storage) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=SqlCatalog("postgresql://host/lake"), storage=place)


def test_hdfs_without_its_native_client_is_no_place_for_files() -> None:
    with pytest.raises(UserError) as raised:
        probe(elsewhere(HdfsStorage("hdfs://127.0.0.1:1/lake")))
    check_text("storage_errors", "no libhdfs", str(raised.value))


def test_local_files_can_be_used_where_they_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert probe(elsewhere(LocalFiles(tmp_path / "lake"))) == f"{tmp_path}/lake"
    assert [*(tmp_path / "lake").iterdir()] == []


def test_a_directory_of_local_files_is_not_made(tmp_path: Path) -> None:
    new = tmp_path / "new" / "lake"
    assert probe(elsewhere(LocalFiles(new))) == f"{tmp_path}, in which {new} can be created"
    assert [*tmp_path.iterdir()] == []


def test_a_directory_of_local_files_that_cannot_be_made_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as raised:
        probe(elsewhere(LocalFiles(tmp_path / "file" / "lake")))
    check_text("storage_errors", "local files", str(raised.value), {str(tmp_path): "DIRECTORY"})


def test_a_place_that_keeps_nothing_is_no_place_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe").symlink_to("/dev/null")
    monkeypatch.setattr(storage_probe, "new_name", lambda: "probe")
    with pytest.raises(UserError) as raised:
        probe(elsewhere(LocalFiles(tmp_path)))
    check_text("storage_errors", "nothing is kept", str(raised.value), {str(tmp_path): "DIRECTORY"})


# A directory


def local(directory: Path) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=LocalCatalog(directory))


def test_a_directory_that_can_be_used_is_left_as_it_was(tmp_path: Path) -> None:
    abandoned, young = tmp_path / storage_probe.new_name(), tmp_path / storage_probe.new_name()
    for file in (abandoned, young):
        file.touch()
    os.utime(abandoned, (0, 0))
    probe(local(tmp_path))
    assert [*tmp_path.iterdir()] == [young]


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as raised:
        probe(local(tmp_path / "file" / "warehouse"))
    check_text("storage_errors", "directory", str(raised.value), {str(tmp_path): "DIRECTORY"})


LOCAL_PROBE: Final = """
import sys
from pathlib import Path
from connector.config.catalog import LocalCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.checks.storage_probe import probe
probe(EndpointConfig(namespace="ns", catalog=LocalCatalog(Path(sys.argv[1]))), {})
print([name for name in sys.modules if name.startswith("boto")])
"""


def test_a_local_catalog_does_not_load_the_libraries_of_aws(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCAL_PROBE, str(tmp_path)]
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout == b"[]\n"
