"""Files are read from S3, written there and deleted by a client that needs little, and by PyArrow where that client
fails."""

import gzip
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from io import SEEK_CUR, SEEK_END, SEEK_SET, BytesIO
from itertools import product
from random import randbytes
from threading import Event
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.compute import field
from pyarrow.dataset import ParquetFileFormat
from pyiceberg.io import (
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROXY_URI,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SESSION_TOKEN,
    FileIO,
)
from pyiceberg.types import StringType

from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.live_rows.deletion_vectors import read_deletion_vector, write_deletion_vectors
from connector.encoding.live_rows.position_deletes import read_position_deletes, write_position_deletes
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles
from connector.encoding.parquet.file_columns import FileColumns, open_data_file
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.search.located_rows import write_located
from connector.host.errors import RetryableError, UserError
from connector.host.threads import AT_ONCE, map_in_threads
from connector.model.binding import KeyPart, Updates
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.storage import arrow_file_io, s3_objects
from connector.storage.arrow_file_io import LEAST_READ
from connector.storage.file_access import file_properties
from connector.storage.file_io import LARGEST_HELD, create_file, open_file_io, write_small_file
from connector.storage.s3_objects import MOST_REFUSALS, ObjectFile, find_url, open_s3_objects
from connector.storage.storage_errors import translate_errors
from connector.storage.stored_files import files_under
from encoding.store_lines import binding, numbered, plain
from support.plans import meeting
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, Request, fault_proxy
from support.servers.odd_servers import Dripping, answering, dripping
from support.servers.pooled_connections import is_probed
from support.servers.s3_server import S3Server
from support.snapshots import check_text

pytestmark = pytest.mark.catalog

LARGE: Final = 3 * LEAST_READ
FORBIDDEN: Final = "the object store forbids this \\(ACCESS_DENIED"
KEYS: Final = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "secret", S3_REGION: "eu-west-1"}
NAMES: Final = ("plain", "with space", "ä/ö", "a+b=c", "100%25", "a&b;c'(d)*!", "name=x%2Fy/z", "…", "~t", "a.b/..c")


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def io(s3_server: S3Server, proxy: FaultProxy) -> FileIO:
    return open_file_io(file_properties(s3_server.file_properties(), {S3_ENDPOINT: proxy.uri}))


@pytest.fixture
def slow_io(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FileIO, Event]]:
    """What reads and writes in a store that answers byte by byte, and whether its answers have ended."""
    monkeypatch.setattr(arrow_file_io, "LONGEST_CALL", 0.3)
    monkeypatch.setattr(arrow_file_io, "LEAST_SPEED", 1e9)
    monkeypatch.setattr(s3_objects, "LONGEST_ANSWER", 0.3)
    with dripping(Dripping.BODY_OF_KNOWN_LENGTH) as (uri, has_ended):
        yield open_file_io(file_properties({S3_ENDPOINT: uri, **KEYS})), has_ended


def stranger_of(s3_server: S3Server) -> dict[str, str]:
    user = s3_server.new_user()
    return {"s3.access-key-id": user.access_key_id, "s3.secret-access-key": user.secret_access_key}


def read(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return stream.read()


def write_data_file(io: FileIO, location: str) -> DataFile:
    of = binding(StringType())
    decoder = RowDecoder(of)
    files = NewFiles(io, lambda: location, of.columns, decoder.schema, FileOptions.of_table({}))
    writer = DataFileWriter(files)
    writer.write(decoder.decode(numbered(plain(1, "a") + plain(2, "b"))).batch)
    [written] = writer.finish()
    return written


def write_deleted_positions(io: FileIO, location: str) -> None:
    write_position_deletes(io, location, pa.array(["a"]).dictionary_encode(), pa.array([1]))


def write_deletion_vector(io: FileIO, location: str) -> None:
    write_deletion_vectors(io, location, {"a": np.array([1])})


def write_located_rows(io: FileIO, location: str) -> None:
    rows = pa.Table.from_pylist([{"file_path": "a", "pos": 1, "key": "[1]"}])
    write_located(io, location, [rows], Updates((KeyPart(1, "/id"),), document_id=2))


def search_data_file(io: FileIO, location: str, size: int) -> None:
    with open_data_file(io, location, size) as reader:
        columns = FileColumns(reader)
        assert sum(batch.num_rows for batch in columns.read_batches([*columns.names], [0], 10)) == 2


def is_of_the_small_client(request: Request) -> bool:
    """PyArrow does not sign a digest of the content."""
    return request.method == "PUT" and "content-md5" in request.authorization


def methods(proxy: FaultProxy) -> list[str]:
    return [request.method for request in proxy.seen]


def kinds(proxy: FaultProxy) -> list[tuple[str, bool]]:
    return [(request.method, is_of_the_small_client(request)) for request in proxy.seen]


@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_written_with_one_request_where_pyarrow_looks_for_it(
    name: str, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location = f"s3://{bucket}/{name}"
    write_small_file(io, location, b"content")
    assert kinds(proxy) == [("PUT", True)]
    assert read(io, location) == b"content"


@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_deleted_with_one_request(name: str, io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    location = f"s3://{bucket}/{name}"
    write_small_file(io, location, b"content")
    proxy.seen.clear()
    io.delete(location)
    assert [request.method for request in proxy.seen] == ["DELETE"]
    assert not io.new_input(location).exists()
    io.delete(location)


@pytest.mark.parametrize("answer", [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.NOT_IMPLEMENTED, Answer.NONE])
def test_an_object_that_may_not_be_deleted_is_deleted_by_pyarrow(
    answer: Answer | HTTPStatus, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location = f"s3://{bucket}/object"
    write_small_file(io, location, b"content")
    proxy.inject(lambda request: request.method == "DELETE", Fault(0, answer))
    io.delete(location)
    assert not io.new_input(location).exists()
    proxy.seen.clear()
    write_small_file(io, location, b"content")
    assert kinds(proxy) == [("PUT", True)], "what the store refuses is known for each kind of request"


def test_an_object_whose_deletion_is_forbidden_gets_the_error_of_pyarrow(s3_server: S3Server, bucket: str) -> None:
    io = open_file_io(file_properties(s3_server.file_properties(), stranger_of(s3_server)))
    location = f"s3://{bucket}/forbidden"
    with pytest.raises(UserError, match=FORBIDDEN), translate_errors(location):
        io.delete(location)


@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_read_with_one_request(name: str, io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    location = f"s3://{bucket}/{name}"
    write_small_file(io, location, b"content")
    proxy.seen.clear()
    assert read(io, location) == b"content"
    assert methods(proxy) == ["GET"]


def test_a_part_of_an_object_is_read_with_one_request(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    location = f"s3://{bucket}/parts"
    write_small_file(io, location, b"some content")
    proxy.seen.clear()
    with io.new_input(location).open() as stream:
        stream.seek(5)
        assert (stream.read(3), stream.tell(), stream.read(9)) == (b"con", 8, b"tent")
    assert methods(proxy) == ["GET", "GET"]


def test_an_object_that_is_read_whole_is_not_asked_for_again(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    """As gzip reads it."""
    location = f"s3://{bucket}/whole"
    write_small_file(io, location, b"some content")
    proxy.seen.clear()
    with io.new_input(location).open() as stream:
        assert (stream.read(4), stream.seek(-4, SEEK_END), stream.read()) == (b"some", 8, b"tent")
    assert methods(proxy) == ["GET"]


def test_parquet_is_read_from_the_stream_with_one_request(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    """As PyIceberg's scans read delete files."""
    location = f"s3://{bucket}/scanned.parquet"
    write_deleted_positions(io, location)
    proxy.seen.clear()
    with io.new_input(location).open() as stream:
        fragment = ParquetFileFormat().make_fragment(stream)
        assert fragment.to_table(filter=field("pos") >= 0).num_rows == 1
    assert methods(proxy) == ["GET"]


def test_a_vector_is_read_with_one_request_and_nothing_else_of_its_file(
    io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location = f"s3://{bucket}/vectors.puffin"
    of_files = write_deletion_vectors(io, location, {"a": np.array([1]), "b": np.array([2, 3])})
    proxy.seen.clear()
    assert read_deletion_vector(io, of_files[1].vector).tolist() == [2, 3]
    assert methods(proxy) == ["GET"]


def test_a_position_delete_file_is_read_with_one_request(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    location = f"s3://{bucket}/deletes.parquet"
    write_deleted_positions(io, location)
    proxy.seen.clear()
    assert read_position_deletes(io, location).num_rows == 1
    assert methods(proxy) == ["GET"]


def test_a_small_data_file_is_searched_with_one_request(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    written = write_data_file(io, f"s3://{bucket}/searched.parquet")
    proxy.seen.clear()
    search_data_file(io, written.path, written.size)
    assert methods(proxy) == ["GET"]


def test_of_a_large_data_file_parts_are_read(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    written = write_data_file(io, f"s3://{bucket}/parts.parquet")
    proxy.seen.clear()
    search_data_file(io, written.path, size=1 << 30)
    assert methods(proxy).count("HEAD") == 1
    proxy.seen.clear()
    with open_data_file(io, written.path, size=1 << 30) as reader:
        assert FileColumns(reader).row_groups == 1
    assert proxy.seen == [], "the footer is known"


@pytest.mark.parametrize(
    ("begin", "answer"), [(5, HTTPStatus.SERVICE_UNAVAILABLE), (LARGE - 5, HTTPStatus.INTERNAL_SERVER_ERROR)]
)
def test_a_part_that_is_smaller_than_the_store_s_error_is_asked_for_again(
    begin: int, answer: HTTPStatus, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location = f"s3://{bucket}/large"
    write_small_file(io, location, content := randbytes(LARGE))
    with io.new_input(location).open(seekable=True) as stream:
        proxy.inject(lambda request: request.method == "GET", Fault(0, answer))
        stream.seek(begin)
        assert stream.read(5) == content[begin : begin + 5]


def test_parts_of_a_large_object_are_those_that_were_asked_for(io: FileIO, bucket: str) -> None:
    location, places = f"s3://{bucket}/large", (0, 7, LEAST_READ, LARGE - LEAST_READ + 1, LARGE - 2, LARGE, LARGE + 1)
    write_small_file(io, location, content := randbytes(LARGE))
    opened: Any = io.new_input(location).open(seekable=True)
    with opened as stream, BytesIO(content) as same:
        for place, size in product(places, (0, 1, 9, LEAST_READ, LARGE, -1)):
            assert (stream.seek(place), same.seek(place)) == (place, place)
            assert (stream.read(size), stream.tell()) == (same.read(size), same.tell())
        for whence, offset in ((SEEK_SET, 3), (SEEK_CUR, 4), (SEEK_END, -5)):
            assert stream.seek(offset, whence) == same.seek(offset, whence)
            read, expected = bytearray(9), bytearray(9)
            assert (stream.readinto(read), read) == (same.readinto(expected), expected)


@pytest.mark.parametrize(
    "answer", [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.NOT_IMPLEMENTED, Answer.NONE, Answer.TRUNCATED]
)
@pytest.mark.parametrize("begin", [0, 5])
def test_an_object_that_may_not_be_read_is_read_by_pyarrow(
    answer: Answer | HTTPStatus, begin: int, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location = f"s3://{bucket}/read-again"
    write_small_file(io, location, b"some content")
    proxy.inject(lambda request: request.method == "GET", Fault(1, answer))
    with io.new_input(location).open() as stream:
        stream.seek(begin)
        assert stream.read(7) == b"some content"[begin : begin + 7]
    assert "HEAD" in methods(proxy)


def test_a_missing_object_is_not_found_and_others_are_read_as_before(
    io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    with pytest.raises(FileNotFoundError):
        read(io, f"s3://{bucket}/missing")
    write_small_file(io, f"s3://{bucket}/there", b"content")
    proxy.seen.clear()
    assert read(io, f"s3://{bucket}/there") == b"content"
    assert methods(proxy) == ["GET"]


def test_an_object_that_nobody_may_read_gets_the_error_of_pyarrow(s3_server: S3Server, bucket: str) -> None:
    io = open_file_io(file_properties(s3_server.file_properties(), stranger_of(s3_server)))
    location = f"s3://{bucket}/forbidden"
    with pytest.raises(UserError, match=FORBIDDEN), translate_errors(location):
        read(io, location)


def test_content_is_returned_as_it_is_stored(s3_server: S3Server, io: FileIO, bucket: str) -> None:
    with s3_server.client() as client:
        client.put_object(Bucket=bucket, Key="zip", Body=gzip.compress(b"content"), ContentEncoding="gzip")
    assert gzip.decompress(read(io, f"s3://{bucket}/zip")) == b"content"


def test_a_large_object_is_left_to_pyarrow(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    content = b"x" * (LARGEST_HELD + 1)
    write_small_file(io, f"s3://{bucket}/large", content)
    assert not any(is_of_the_small_client(request) for request in proxy.seen)
    assert read(io, f"s3://{bucket}/large") == content


@pytest.mark.parametrize("size", [0, 1, LARGEST_HELD])
def test_a_file_that_ends_while_it_is_small_is_written_with_one_request(
    size: int, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    location, content = f"s3://{bucket}/file-{size}", b"xy" * (size // 2) + b"z" * (size % 2)
    stream = create_file(io, location)
    for begin in range(0, size, 1 << 20):
        assert stream.tell() == begin
        stream.write(memoryview(content)[begin : begin + (1 << 20)])
    assert proxy.seen == [], "the file is not there before it is whole"
    stream.close()
    stream.close()
    assert kinds(proxy) == [("PUT", True)]
    assert read(io, location) == content


def test_a_file_that_grows_large_is_left_to_pyarrow(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    parts = [b"begin", b"x" * LARGEST_HELD, b"y" * LARGEST_HELD, b"end"]
    stream = create_file(io, f"s3://{bucket}/growing")
    for part in parts:
        stream.write(part)
    assert stream.tell() == sum(map(len, parts))
    stream.close()
    assert not any(is_of_the_small_client(request) for request in proxy.seen)
    assert read(io, f"s3://{bucket}/growing") == b"".join(parts)


def test_a_data_file_of_few_rows_is_written_with_one_request(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    written = write_data_file(io, f"s3://{bucket}/few-rows.parquet")
    assert kinds(proxy) == [("PUT", True)]
    content = read(io, written.path)
    assert (written.rows, written.size) == (2, len(content))
    assert pq.read_table(pa.BufferReader(content)).num_rows == 2


@pytest.mark.parametrize("write", [write_deleted_positions, write_deletion_vector, write_located_rows])
def test_a_small_file_of_deletes_is_written_with_one_request(
    write: Callable[[FileIO, str], object], io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    write(io, f"s3://{bucket}/deletes")
    assert kinds(proxy) == [("PUT", True)]


def test_a_data_file_that_no_client_may_write_gets_the_error_of_pyarrow(s3_server: S3Server, bucket: str) -> None:
    io = open_file_io(file_properties(s3_server.file_properties(), stranger_of(s3_server)))
    with pytest.raises(UserError, match=FORBIDDEN):
        write_data_file(io, f"s3://{bucket}/forbidden.parquet")


def test_a_large_file_that_may_not_be_written_gets_the_error_of_pyarrow(s3_server: S3Server, bucket: str) -> None:
    io = open_file_io(file_properties(s3_server.file_properties(), stranger_of(s3_server)))
    location, rows = f"s3://{bucket}/forbidden.parquet", pa.table({"bytes": [randbytes(12 << 20)]})
    with pytest.raises(UserError, match=FORBIDDEN), translate_errors(location):
        pq.write_table(rows, create_file(io, location))


@pytest.mark.parametrize("name", ["a//b", "a/../b", "./a"])
def test_an_unusual_path_is_left_to_pyarrow(name: str, s3_server: S3Server, proxy: FaultProxy, bucket: str) -> None:
    properties = file_properties(s3_server.file_properties(), {S3_ENDPOINT: proxy.uri})
    objects = open_s3_objects(Properties(properties))
    assert objects
    assert not objects.put(f"s3://{bucket}/{name}", b"content")
    assert proxy.seen == []


def test_an_object_whose_path_pyarrow_refuses_is_not_listed() -> None:
    """Nothing could read or delete it. Amazon keeps such keys, and the server of the other tests does not."""
    keys = ("lake/data/a", "lake/data//b", "lake//data/c")
    listed = "".join(f"<Contents><Key>{key}</Key><Size>7</Size></Contents>" for key in keys)
    with answering(200, f"<ListBucketResult>{listed}</ListBucketResult>") as server:
        io = open_file_io(file_properties(KEYS, {S3_ENDPOINT: server.uri}))
        assert [*files_under(io, "s3://bucket/lake")] == ["s3://bucket/lake/data/a"]


@pytest.mark.parametrize(
    "answer", [HTTPStatus.SERVICE_UNAVAILABLE, Answer.NONE, Answer.TRUNCATED, HTTPStatus.TEMPORARY_REDIRECT]
)
@pytest.mark.parametrize("forwarded", [0, 1])
def test_an_object_that_may_not_be_written_is_written_by_pyarrow(
    answer: Answer | HTTPStatus, forwarded: int, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    proxy.inject(is_of_the_small_client, Fault(forwarded, answer))
    with closing(create_file(io, f"s3://{bucket}/again")) as stream:
        stream.write(b"con")
        stream.write(b"tent")
    assert read(io, f"s3://{bucket}/again") == b"content"


def test_a_store_that_does_not_answer_is_not_waited_for_without_limit(
    s3_server: S3Server, proxy: FaultProxy, bucket: str
) -> None:
    limit = {S3_ENDPOINT: proxy.uri, S3_REQUEST_TIMEOUT: "0.5"}
    io = open_file_io(file_properties(s3_server.file_properties(), limit))
    proxy.inject(is_of_the_small_client, Fault(0, Answer.SILENCE))
    write_small_file(io, f"s3://{bucket}/silence", b"content")
    assert kinds(proxy) == [("PUT", True), ("PUT", False)]


@pytest.mark.parametrize("what", Dripping)
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(what: Dripping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_objects, "LONGEST_ANSWER", 0.3)
    with dripping(what) as (uri, has_ended):
        objects = open_s3_objects(Properties({S3_ENDPOINT: uri, **KEYS}))
        assert objects
        with pytest.raises(RetryableError) as raised, translate_errors("s3://bucket/key"):
            objects.get("s3://bucket/key")
        assert not has_ended.is_set()
    check_text("storage_errors", "an answer that comes byte by byte", str(raised.value), {"after 0 s": "after 300 s"})


def test_a_part_of_a_large_object_that_comes_byte_by_byte_is_not_waited_for(slow_io: tuple[FileIO, Event]) -> None:
    io, has_ended = slow_io
    with pytest.raises(RetryableError) as raised, translate_errors("s3://bucket/key"):
        pq.read_table(io.new_input("s3://bucket/key").open(seekable=True))
    assert not has_ended.is_set()
    check_text("storage_errors", "a transfer that is too slow", str(raised.value), {"after 0 s": "after 602 s"})


def test_a_small_file_is_in_memory_once_while_it_waits_for_its_upload() -> None:
    held: list[int] = []

    def write(*_: object) -> None:
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        stream = create_file(open_file_io({}), "s3://bucket/key", write)
        for _ in range(8):
            stream.write(bytes(LARGEST_HELD // 8))
        stream.close()
    finally:
        tracemalloc.stop()
    assert LARGEST_HELD <= held[0] < LARGEST_HELD * 1.2


def test_an_upload_whose_answer_comes_byte_by_byte_is_not_waited_for(slow_io: tuple[FileIO, Event]) -> None:
    """Nor is it waited for again when its stream is closed."""
    io, has_ended = slow_io
    stream = io.new_output("s3://bucket/key").create(overwrite=True)
    with pytest.raises(RetryableError, match="not whole after"), translate_errors("s3://bucket/key"), stream:
        stream.write(bytes(20 << 20))
    with pytest.raises(RetryableError, match="not whole after"), translate_errors("s3://bucket/key"):
        write_small_file(io, "s3://bucket/key", b"small")
    assert not has_ended.is_set()


def test_the_end_of_an_upload_that_comes_byte_by_byte_is_not_waited_for(slow_io: tuple[FileIO, Event]) -> None:
    """What PyArrow still holds is sent when the stream is closed."""
    io, has_ended = slow_io
    stream = io.new_output("s3://bucket/key").create(overwrite=True)
    stream.write(b"a few bytes")
    with pytest.raises(RetryableError, match="not whole after"), translate_errors("s3://bucket/key"):
        stream.close()
    assert not has_ended.is_set()


@pytest.mark.parametrize(("status", "part"), [(HTTPStatus.PARTIAL_CONTENT, b"abc"), (HTTPStatus.OK, None)])
def test_a_server_that_answers_with_the_whole_object_has_sent_no_part(status: HTTPStatus, part: bytes | None) -> None:
    with answering(status, "abc") as server:
        objects = open_s3_objects(Properties({S3_ENDPOINT: server.uri, **KEYS}))
        assert objects
        assert objects.get("s3://bucket/key", 5, 10) == part


def test_an_idle_connection_is_probed() -> None:
    with answering(HTTPStatus.OK, "abc", {"Connection": "keep-alive", "Content-Length": "3"}) as server:
        limit = {"s3.connect-timeout": "7"}  # no other client has it, so none shares the connections
        objects = open_s3_objects(Properties({S3_ENDPOINT: server.uri, **KEYS, **limit}))
        assert objects
        assert objects.get("s3://bucket/key") == b"abc"
        assert is_probed(objects._pool)


def test_a_part_that_ends_with_its_object_leaves_the_stream_there() -> None:
    with answering(HTTPStatus.PARTIAL_CONTENT, "abc") as server:
        objects = open_s3_objects(Properties({S3_ENDPOINT: server.uri, **KEYS}))
        assert objects
        stream = ObjectFile(objects, "s3://bucket/key", lambda: pytest.fail("nothing else is read")).open()
        stream.seek(5)
        assert stream.read(10) == b"abc"
        assert stream.tell() == 8


def test_connections_of_requests_at_the_same_time_stay_open(io: FileIO, proxy: FaultProxy, bucket: str) -> None:
    """Several tables are committed at once, and each sends several files."""
    at_once = 2 * AT_ONCE
    together = meeting(at_once)

    def wait_for_the_others(_: Request) -> Fault:
        together.wait()
        return GENUINE

    proxy.choose = wait_for_the_others
    for _ in range(2):
        map_in_threads(lambda name: write_small_file(io, f"s3://{bucket}/{name}", b"a"), range(at_once), "w", at_once)
    assert len(proxy.clients) == at_once


def test_a_store_that_refuses_such_requests_is_asked_a_few_times(
    io: FileIO, proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.inject(is_of_the_small_client, Fault(0, HTTPStatus.NOT_IMPLEMENTED))
    for _ in range(MOST_REFUSALS):
        proxy.inject(is_of_the_small_client, Fault(0, HTTPStatus.BAD_REQUEST))
    for number in range(MOST_REFUSALS + 3):  # status 501 says nothing of the next request
        write_small_file(io, f"s3://{bucket}/{number}", b"content")
    asked = [("PUT", True), ("PUT", False)] * (MOST_REFUSALS + 1)
    assert kinds(proxy) == [*asked, ("PUT", False), ("PUT", False)]
    proxy.seen.clear()
    monkeypatch.setattr(s3_objects, "LONGEST_REST", 0.0)
    write_small_file(io, f"s3://{bucket}/later", b"content")
    assert kinds(proxy) == [("PUT", True)], "the store is asked again later"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_refusal_for_one_table_is_none_for_the_others(
    method: str, proxy: FaultProxy, bucket: str, io: FileIO
) -> None:
    """The policy of a bucket may be about one prefix, and a missing object may be forbidden."""
    objects = open_s3_objects(Properties(io.properties))
    assert objects
    calls: dict[str, Callable[[str], object]] = {
        "GET": lambda name: objects.get(f"s3://{bucket}/{name}") is not None,
        "PUT": lambda name: objects.put(f"s3://{bucket}/{name}", b"content"),
        "DELETE": lambda name: objects.delete(f"s3://{bucket}/{name}"),
    }
    calls["PUT"]("allowed")
    for _ in range(MOST_REFUSALS):
        proxy.inject(lambda request: "forbidden" in request.path, Fault(0, HTTPStatus.FORBIDDEN))
        assert not calls[method]("forbidden")
        calls["PUT"]("allowed")
        assert calls[method]("allowed")


@pytest.mark.parametrize("status", [HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT])
def test_a_store_that_has_too_much_to_do_is_asked_again(
    status: HTTPStatus, io: FileIO, proxy: FaultProxy, bucket: str
) -> None:
    proxy.inject(is_of_the_small_client, Fault(0, status))
    for number in range(2):
        write_small_file(io, f"s3://{bucket}/busy-{number}", b"content")
    assert kinds(proxy) == [("PUT", True), ("PUT", False), ("PUT", True)]


def test_a_refused_object_gets_the_error_of_pyarrow(s3_server: S3Server, bucket: str) -> None:
    io = open_file_io(file_properties(s3_server.file_properties(), stranger_of(s3_server)))
    location = f"s3://{bucket}/forbidden"
    with pytest.raises(UserError, match=FORBIDDEN), translate_errors(location):
        write_small_file(io, location, b"content")


def test_a_session_token_is_sent(s3_server: S3Server, proxy: FaultProxy, bucket: str) -> None:
    token = {S3_ENDPOINT: proxy.uri, S3_SESSION_TOKEN: "a-token-of-a-session"}
    io = open_file_io(file_properties(s3_server.file_properties(), token))
    proxy.inject(is_of_the_small_client, Fault(0, HTTPStatus.OK))
    write_small_file(io, f"s3://{bucket}/token", b"content")
    assert ["x-amz-security-token" in request.authorization for request in proxy.seen] == [True]


@pytest.mark.parametrize(
    "given", [{S3_PROXY_URI: "http://localhost:1"}, {S3_REGION: ""}, {"s3.access-key-id": ""}, {}], ids=str
)
def test_only_pyarrow_knows_proxies_and_finds_regions(given: dict[str, str], s3_server: S3Server) -> None:
    every = {**s3_server.file_properties(), **given}
    assert (open_s3_objects(Properties({name: value for name, value in every.items() if value})) is None) == bool(given)


@pytest.mark.parametrize(
    "odd",
    [
        {S3_ENDPOINT: "minio:9000"},
        {S3_ENDPOINT: "127.0.0.1:9000"},
        {S3_ENDPOINT: "http://[::1"},
        {S3_CONNECT_TIMEOUT: "0"},
        {S3_SESSION_TOKEN: "copied\n"},
        {S3_SESSION_TOKEN: "表"},
        {S3_REGION: "eu-west-1\n"},
    ],
    ids=str,
)
def test_properties_that_an_http_client_refuses_are_left_to_pyarrow(odd: dict[str, str]) -> None:
    """Its endpoint may be without a scheme, and an error of Python's client would quote the token."""
    keys = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "secret", S3_REGION: "eu-west-1"}
    objects = open_s3_objects(Properties({S3_ENDPOINT: "http://127.0.0.1:1", **keys, **odd}))
    assert objects is None or not objects.put("s3://bucket/key", b"content")


@pytest.mark.parametrize(
    ("properties", "url"),
    [
        ({S3_ENDPOINT: "http://localhost:9000/"}, "http://localhost:9000/b/k%20k"),
        ({S3_ENDPOINT: "https://s3.example/base"}, "https://s3.example/base/b/k%20k"),
        ({S3_ENDPOINT: "https://s3.example", S3_FORCE_VIRTUAL_ADDRESSING: "true"}, "https://b.s3.example/k%20k"),
        ({S3_REGION: "eu-west-1"}, "https://b.s3.eu-west-1.amazonaws.com/k%20k"),
        ({S3_REGION: "cn-north-1"}, "https://b.s3.cn-north-1.amazonaws.com.cn/k%20k"),
    ],
)
def test_the_address_of_an_object_follows_the_endpoint_and_the_region(properties: dict[str, str], url: str) -> None:
    assert find_url("s3://b/k k", properties) == url


def test_a_bucket_with_dots_is_a_part_of_the_path_at_amazon() -> None:
    assert find_url("s3://a.b/k", {S3_REGION: "eu-west-1"}) == "https://s3.eu-west-1.amazonaws.com/a.b/k"


@pytest.mark.parametrize("bucket", ["evil\\", "10.0.0.1\\", "user@host", "b%5c", "b:80", "[::1]", "b c", ""])
def test_a_bucket_that_is_no_name_has_no_address(bucket: str) -> None:
    """A backslash ends the host for HTTP clients. Anyone who can commit to a table names its buckets."""
    with pytest.raises(ValueError, match="must be the name of a bucket"):
        find_url(f"s3://{bucket}/k", {S3_REGION: "eu-west-1"})


EIGHT_AT_ONCE: Final = """
import resource, sys, threading
from connector.storage.file_io import open_file_io, write_small_file
io = open_file_io(dict(argument.split("=", 1) for argument in sys.argv[2:]))
write_small_file(io, sys.argv[1], b"everything is imported now, and PyArrow's file system is open")
io.new_input(sys.argv[1]).exists()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = threading.Barrier(8)
def write(number):
    start.wait()
    for _ in range(5):
        write_small_file(io, f"{sys.argv[1]}-{number}", b"content" * 700)
threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_eight_small_objects_at_once_do_not_take_ten_megabytes_each(s3_server: S3Server, bucket: str) -> None:
    properties = [f"{name}={value}" for name, value in file_properties(s3_server.file_properties()).items()]
    command = [sys.executable, "-c", EIGHT_AT_ONCE, f"s3://{bucket}/memory", *properties]
    kilobytes = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert kilobytes < 10 << 10
