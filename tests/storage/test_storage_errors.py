"""Whatever an object store refuses, its user hears where, why and what to do."""

import dataclasses
import errno
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyiceberg.io import PY_IO_IMPL, load_file_io

from connector.config.catalog import GlueCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles, RowGroupMemory
from connector.encoding.parquet.file_options import FileOptions
from connector.host.errors import RetryableError, SignInError, UserError
from connector.storage import arrow_file_io
from connector.storage.file_access import STORE_FILE_IO
from connector.storage.storage_errors import is_of_content, translate_errors, translate_errors_of_directory
from connector.storage.store_properties import data_file_properties
from support.servers.odd_servers import answering
from support.servers.s3_server import Keys, S3Server, credentials
from support.servers.server_process import free_address
from support.snapshots import check_text


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the keys of one who may only read it."""

    server: S3Server
    name: str
    reader: Keys


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_file_io, "ATTEMPTS", 1)


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Bucket:
    name = s3_server.new_bucket()
    return Bucket(s3_server, name, s3_server.new_user_of(name, "s3:GetObject", "s3:ListBucket"))


@pytest.fixture(scope="module")
def right(bucket: Bucket) -> EndpointConfig:
    """A config that works."""
    return EndpointConfig(
        namespace="ns",
        catalog=GlueCatalog(),
        credentials=credentials(bucket.server.root),
        bucket=bucket.name,
        region=bucket.server.region,
        s3_endpoint=bucket.server.endpoint,
    )


def write(config: EndpointConfig) -> None:
    """Write an object as a task does."""
    location = f"s3://{config.bucket}/lake/file"
    output = load_file_io(data_file_properties(config)).new_output(location)
    with translate_errors(location), output.create(overwrite=True) as stream:
        stream.write(b"content")


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("a store that slows down", 503, "SlowDown"),
        ("a store that is not available", 503, "ServiceUnavailable"),
        ("a store that is broken", 500, "InternalError"),
        ("a gateway without a store", 502, ""),
    ],
)
def test_a_store_that_cannot_answer_now_is_told_as_that(
    right: EndpointConfig, name: str, status: int, code: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>Please wait.</Message></Error>" if code else "<html>Bad Gateway</html>"
    with answering(status, body) as server, pytest.raises(RetryableError) as raised:
        write(replace(right, s3_endpoint=server.uri))
    assert len(server.requests) == 1
    check_text("storage_errors", f"a writer: {name}", str(raised.value), {right.bucket: "BUCKET"})


def test_who_may_write_writes(bucket: Bucket, right: EndpointConfig) -> None:
    write(right)
    with bucket.server.client() as client:
        assert client.get_object(Bucket=bucket.name, Key="lake/file")["Body"].read() == b"content"


def test_a_file_whose_keys_are_revoked_before_it_is_closed_is_abandoned_with_that_error(
    bucket: Bucket, right: EndpointConfig
) -> None:
    user = bucket.server.new_user("admin")
    io = load_file_io(data_file_properties(replace(right, credentials=credentials(user))))
    schema = pa.schema([("id", pa.int64())])
    new_files = NewFiles(io, lambda: f"s3://{bucket.name}/lake/revoked", (), schema, FileOptions.of_table({}))
    files = DataFileWriter(new_files, row_group=RowGroupMemory(1))
    files.write(pa.record_batch({"id": [1]}, schema=schema))
    bucket.server.delete_user(user)
    with pytest.raises(UserError, match="does not accept the credentials"):
        files.finish()
    files.abort()


Change: TypeAlias = Callable[[Bucket], dict[str, Any]]


@pytest.mark.parametrize(
    ("wrong", "kind", "what", "remedy"),
    [
        (
            lambda bucket: {
                "credentials": credentials(dataclasses.replace(bucket.server.root, secret_access_key="planted"))
            },
            UserError,
            "does not accept the credentials (SIGNATURE_DOES_NOT_MATCH",
            "Check /credentials, or /storage/credentials if they are set.",
        ),
        (
            lambda _: {"credentials": credentials(Keys("nobody", "planted"))},
            UserError,
            "does not accept the credentials (INVALID_ACCESS_KEY_ID",
            "Check /credentials, or /storage/credentials if they are set.",
        ),
        (
            lambda bucket: {"credentials": credentials(bucket.server.root, token="planted")},
            UserError,
            "does not accept the credentials (UNKNOWN (HTTP status 400)",
            "Check /credentials, or /storage/credentials if they are set.",
        ),
        (
            lambda bucket: {"credentials": credentials(bucket.reader)},
            UserError,
            "forbids this (ACCESS_DENIED",
            "that they allow to read, write, list and delete objects there. If the catalog vends credentials, allow "
            "its user to write the table's data.",
        ),
        (
            lambda _: {"bucket": "no-such-bucket"},
            UserError,
            "there is no such bucket (NO_SUCH_BUCKET",
            "Create it, or correct /bucket (with /storage: /storage/bucket).",
        ),
        (
            lambda _: {"region": "eu-west-1"},
            UserError,
            "the bucket is in another region",
            "Check /region and /s3_endpoint, or with /storage its region and endpoint.",
        ),
        (
            lambda _: {"s3_endpoint": f"http://{free_address()}"},
            RetryableError,
            "the object store cannot be reached (NETWORK_CONNECTION",
            "Check that the network allows it, /s3_endpoint and /region, or with /storage its endpoint and region.",
        ),
    ],
    ids=["secret", "key", "token", "permission", "bucket", "region", "endpoint"],
)
def test_what_an_object_store_refuses_is_explained(
    bucket: Bucket, right: EndpointConfig, wrong: Change, kind: type[Exception], what: str, remedy: str
) -> None:
    config = replace(right, **wrong(bucket))
    with pytest.raises(kind) as raised:
        write(config)
    sentence = str(raised.value)
    assert sentence.startswith(f"s3://{config.bucket}/lake/file: ")
    assert what in sentence
    assert sentence.endswith(remedy)
    assert "planted" not in sentence
    said = re.sub(r"Request ID: \w+|127\.0\.0\.1:\d+ after \d+ ms", "…", sentence)
    check_text("storage_errors", f"a writer: {what}", said, {config.bucket: "BUCKET"})


def test_a_path_with_an_empty_part_is_told_as_one_that_pyarrow_refuses(right: EndpointConfig) -> None:
    with pytest.raises(UserError) as raised:
        write(replace(right, bucket=f"{right.bucket}/"))
    check_text("storage_errors", "a writer: a path with an empty part", str(raised.value), {right.bucket: "BUCKET"})


def test_a_clock_that_is_wrong_is_told_while_files_are_written(right: EndpointConfig) -> None:
    late = "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
    with (
        answering(403, late) as server,
        pytest.raises(
            UserError, match=r"the clock of this machine is wrong \(.*The difference is too large.*\)\. Set it\.$"
        ),
    ):
        write(replace(right, s3_endpoint=server.uri))


def test_keys_that_have_expired_are_told_as_a_sign_in_that_is_refused(right: EndpointConfig) -> None:
    late = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    refused = pytest.raises(SignInError, match=r"does not accept the credentials \(.*The provided token has expired")
    with answering(400, late) as server, refused:
        write(replace(right, s3_endpoint=server.uri))


def test_a_disk_that_cannot_be_written_may_be_tried_again(tmp_path: Path) -> None:
    reason = rf"^file://{tmp_path}: .*Is a directory: '{tmp_path}'\.$"
    with pytest.raises(RetryableError, match=reason), translate_errors(f"file://{tmp_path}"):
        tmp_path.write_bytes(b"")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full, which takes nothing")
def test_a_full_disk_is_told_with_its_place() -> None:
    location = "file:///dev/full"
    with (
        pytest.raises(RetryableError) as raised,
        translate_errors(location),
        load_file_io({}, location).new_output(location).create(overwrite=True) as stream,
    ):
        stream.write(b"content")
    check_text("storage_errors", "a writer: the disk is full", str(raised.value))


def test_a_full_disk_of_the_directory_for_data_files_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(RetryableError) as raised, translate_errors_of_directory(tmp_path):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    check_text("storage_errors", "a directory: the disk is full", str(raised.value), {str(tmp_path): "DIRECTORY"})


@pytest.mark.parametrize(
    "error",
    [
        OSError("HDFS connection failed"),
        OSError("Unable to load libhdfs"),
        OSError("google::cloud::Status(UNAVAILABLE: the connection was closed)"),
        OSError("google::cloud::Status(UNKNOWN: the connection was closed). Detail: none"),
        OSError("google::cloud::Status(UNKNOWN: curl error [56] error_info={reason=, domain=, metadata={}})"),
        OSError("When reading 'file': AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 56"),
        OSError("ReadAt failed. Azure Error: [] broken pipe"),
        OSError(5, "Input/output error"),
        FileNotFoundError("Cannot open file, does not exist: s3://lake/file"),
        PermissionError("Cannot open file, access denied: s3://lake/file"),
        TimeoutError("the store did not answer"),
    ],
    ids=str,
)
def test_what_a_store_or_a_disk_says_is_not_taken_for_a_damaged_file(error: OSError) -> None:
    """Otherwise a compaction would leave a sound file out, and a Load would tell the user to restore it."""
    assert not is_of_content(error)


@pytest.mark.parametrize("text", ["Couldn't deserialize thrift: No more data to read.", "Unexpected end of stream"])
def test_what_is_said_of_a_file_s_content_is_told_apart_from_its_store(text: str) -> None:
    assert is_of_content(OSError(text))


def answer_of_google(function: str, message: str) -> FileNotFoundError:
    """Google's client has no other error for a missing bucket than for a missing file."""
    status = f"NOT_FOUND: Permanent error, with a last message of {message} error_info={{reason=notFound, metadata={{"
    return FileNotFoundError(2, f"google::cloud::Status({status}gcloud-cpp.retry.function={function}, ...}}}})")


@pytest.mark.parametrize(
    ("name", "function", "message", "kind"),
    [
        ("no such file", "GetObjectMetadata", "No such object: lake/data/file.parquet", RetryableError),
        ("no such metadata file", "GetObjectMetadata", "No such object: lake/00001-a.metadata.json", RetryableError),
        ("no such file, without its name", "ReadObject", "Not Found", RetryableError),
        ("no such bucket, to a reader", "ReadObject", "The specified bucket does not exist.", UserError),
        ("no such bucket, to a writer", "CreateResumableUpload", "Not Found", UserError),
    ],
)
def test_of_google_a_file_that_is_gone_is_told_from_a_bucket_that_is_not_there(
    name: str, function: str, message: str, kind: type[Exception]
) -> None:
    """What another process has deleted or replaced is looked for again."""
    with pytest.raises(kind) as error, translate_errors("gs://lake/file"):
        raise answer_of_google(function, message)
    assert isinstance(error.value.__cause__, FileNotFoundError)
    check_text("google_errors", name, str(error.value))


def test_an_answer_of_google_is_quoted_without_what_surrounds_it() -> None:
    with (
        pytest.raises(RetryableError, match=r"^gs://lake/file: .* \(UNAVAILABLE: closed\)\."),
        translate_errors("gs://lake/file"),
    ):
        raise OSError("google::cloud::Status(UNAVAILABLE: closed)")


def test_a_metadata_file_that_is_gone_is_told_from_the_files_that_a_backfill_replaces(tmp_path: Path) -> None:
    missing = f"file://{tmp_path}/00001-a.metadata.json"
    with pytest.raises(RetryableError) as error, translate_errors("the metadata of table shop.orders"):
        load_file_io({PY_IO_IMPL: STORE_FILE_IO}, missing).new_input(missing).open()
    check_text("storage_errors", "a metadata file that is gone", str(error.value), {str(tmp_path): "DIRECTORY"})
