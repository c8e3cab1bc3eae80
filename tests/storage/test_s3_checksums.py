"""Stores that do not know the checksums at the end of a body, which AWS's client sends by default, take large files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from pyiceberg.io import S3_ACCESS_KEY_ID, S3_ENDPOINT, S3_PROXY_URI, S3_REGION, S3_SECRET_ACCESS_KEY

from connector.host.processes import NOT_INHERITED
from connector.storage.file_access import file_properties
from connector.storage.file_io import LARGEST_HELD, StoreFileIO, write_small_file
from connector.storage.s3_environment import CHECKSUM_VARIABLES, choose_checksums
from support.servers.server_thread import QuietHandler, in_thread
from support.sessions.connector_process import ConnectorProcess

KEYS: Final = {S3_REGION: "eu-west-1", S3_ACCESS_KEY_ID: "key", S3_SECRET_ACCESS_KEY: "secret"}
LOCATION: Final = "s3://lake/file"
IN_ONE_REQUEST: Final = LARGEST_HELD + (1 << 20)
IN_PARTS: Final = 25 << 20
UPLOAD: Final = b"<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>"
UPLOADED: Final = b'<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>'


class Store:
    """Has one object. It refuses bodies that are more than the object's content, as older servers do."""

    def __init__(self, *, knows_checksums: bool) -> None:
        self.knows_checksums = knows_checksums
        self.uri = ""
        self.content = b""
        self.parts: dict[int, bytes] = {}
        self.signed_contents: set[str] = set()


@contextmanager
def serving(store: Store) -> Iterator[Store]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body, signed = self._read_body_or_chunks(), self.headers["x-amz-content-sha256"]
            store.signed_contents.add(signed)
            if signed.startswith("STREAMING-") and not store.knows_checksums:
                self.respond(HTTPStatus.BAD_REQUEST, b"<Error><Code>InvalidArgument</Code></Error>")
                return
            if part := parse_qs(urlsplit(self.path).query).get("partNumber"):
                store.parts[int(part[0])] = body
            else:
                store.content = body
            self.respond(HTTPStatus.OK, b"", {"ETag": '"one"'})

        def do_POST(self) -> None:
            self.read_body()
            is_begin = "uploads" in parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            if not is_begin:
                store.content = b"".join(content for _, content in sorted(store.parts.items()))
            self.respond(HTTPStatus.OK, UPLOAD if is_begin else UPLOADED)

        def _read_body_or_chunks(self) -> bytes:
            if "Content-Length" in self.headers:
                return self.read_body()
            chunks = [b""]
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.uri = f"http://127.0.0.1:{http.server_port}"
    with in_thread(http):
        yield store


@pytest.fixture(autouse=True)
def _no_other_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in (*CHECKSUM_VARIABLES, "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def write(properties: dict[str, str], size: int) -> bytes:
    content = os.urandom(size)
    write_small_file(StoreFileIO(file_properties(KEYS, properties)), LOCATION, content)
    return content


@pytest.mark.parametrize("size", [IN_ONE_REQUEST, IN_PARTS])
def test_a_store_that_knows_no_checksums_takes_large_files(size: int) -> None:
    with serving(Store(knows_checksums=False)) as store:
        content = write({S3_ENDPOINT: store.uri}, size)
    assert store.content == content
    assert len(store.parts) == (0 if size == IN_ONE_REQUEST else 3)


@pytest.mark.parametrize("host", ["s3.eu-west-1.amazonaws.com", "s3.cn-north-1.amazonaws.com.cn"])
def test_amazon_gets_checksums_also_after_another_store(host: str) -> None:
    """A bucket with an Object Lock takes no file without one."""
    with serving(Store(knows_checksums=False)) as other:
        write({S3_ENDPOINT: other.uri}, IN_ONE_REQUEST)
    with serving(Store(knows_checksums=True)) as amazon:
        write({S3_ENDPOINT: f"http://{host}", S3_PROXY_URI: amazon.uri}, IN_ONE_REQUEST)
    assert not any(signed.startswith("STREAMING-") for signed in other.signed_contents)
    assert amazon.signed_contents == {"STREAMING-UNSIGNED-PAYLOAD-TRAILER"}


@pytest.mark.xdist_group("variables of this process")
@pytest.mark.parametrize("number", [1, 2])
def test_what_this_process_has_set_for_itself_ends_with_a_test(tmp_path: Path, number: int) -> None:
    """A connector that a test starts would take it for the user's choice, and later tests would, too."""
    assert not NOT_INHERITED, f"before test {number}"
    with choose_checksums({S3_ENDPOINT: "http://127.0.0.1:1"}):
        assert os.environ.keys() >= CHECKSUM_VARIABLES
    (tmp_path / "shown.py").write_text(f"import os, sys; sys.exit(str({set(CHECKSUM_VARIABLES)} & os.environ.keys()))")
    with ConnectorProcess(tmp_path, module=["shown"]) as started:
        assert started.finish().log == "set()\n"
