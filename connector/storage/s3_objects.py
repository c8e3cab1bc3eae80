"""Reads, writes and deletes objects in S3, each with one request.

PyArrow asks for the size of an object before it reads it. To write one, it fills ten megabytes of memory, even for an
object of five kilobytes. This was a fifth of a commit's processor time, and four fifths of that of a small data file.
To delete an object, it sends three requests: it looks for the object, and afterwards it creates an empty one with the
name of the directory. If a request fails, PyArrow does the same. So PyArrow alone decides how failed requests are
repeated, and what errors say. Only an answer that is not whole in time is an error at once.
"""

import base64
import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from io import SEEK_SET, BytesIO, RawIOBase
from typing import Any, Final
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    InputFile,
    InputStream,
)
from urllib3 import HTTPConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from connector.host.answer_time_limit import limit_answers
from connector.host.machine import list_keep_alive_options
from connector.model.properties import Properties
from connector.storage.s3_environment import find_amazon_host, find_certificates, find_proxy
from connector.storage.storage_errors import LATE

log = logging.getLogger(__name__)

OPEN_CLIENTS: Final = 32
CONNECTIONS: Final = 64  # kept open: eight tables are committed at once, and each sends eight files at once
# All are needed, and none may be empty. Without a region, PyArrow asks Amazon for it.
NEEDED: Final = frozenset({S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_REGION})
TIMEOUT: Final = "60"  # seconds
LONGEST_ANSWER: Final = 300.0  # seconds
# More than the files of one table that may be sent at once: a policy may forbid the objects of one table only.
MOST_REFUSALS: Final = 10
LONGEST_REST: Final = 300.0  # seconds
# Statuses that say something of one object or of this moment, and nothing of later requests.
OF_ONE_REQUEST: Final = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    HTTPStatus.TOO_MANY_REQUESTS,
)
UNUSUAL: Final = frozenset({"", ".", ".."})  # parts of a path that PyArrow refuses, or that HTTP clients remove


class S3Objects:
    """Reads, writes and deletes objects with the credentials and at the address of FileIO properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        connect, read = (float(properties.get(name, TIMEOUT)) for name in (S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT))
        self._pool = _open_connections(connect, read, find_certificates())
        # How many requests of a method were refused since its last success, and when the last one was.
        self._refusals: dict[str, tuple[int, float]] = {}

    def get(self, location: str, begin: int = 0, size: int | None = None) -> bytes | None:
        """Return an object, or so many bytes of it. None if it may not be read, is missing, or ends before `begin`."""
        if size is None:
            return self._send("GET", location, b"", {})
        return self._send("GET", location, b"", {"Range": f"bytes={begin}-{begin + size - 1}"})

    def put(self, location: str, content: bytes) -> bool:
        """Write an object in one request. Returns False if it may not be written."""
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        return self._send("PUT", location, content, {"Content-MD5": base64.b64encode(digest).decode()}) is not None

    def delete(self, location: str) -> bool:
        """Delete an object in one request. Returns False if it may not be deleted. A missing one is no error."""
        return self._send("DELETE", location, b"", {}) is not None

    def _send(self, method: str, location: str, content: bytes, headers: dict[str, str]) -> bytes | None:
        """Return the content of the answer, or None if the request failed. TimeoutError if the answer comes too slowly:
        PyArrow would wait for it without limit."""
        began = time.monotonic()
        if self._is_resting(method) or not UNUSUAL.isdisjoint(urlsplit(location).path[1:].split("/")):
            return None
        try:
            url = find_url(location, self._properties)
            request = AWSRequest(method, url, headers, content)
            S3SigV4Auth(self._credentials, "s3", self._properties[S3_REGION]).add_auth(request)
            # The content is returned as it is stored, also if the object says that it is compressed.
            answer = self._pool.request(method, url, body=content, headers=dict(request.headers), decode_content=False)
        except (HTTPError, ValueError) as error:  # ValueError: of a header or an address, which it would quote
            if time.monotonic() - began >= LONGEST_ANSWER:
                raise TimeoutError(f"the answer was {LATE} {LONGEST_ANSWER:.0f} s") from error
            log.debug("%s of %s is repeated with PyArrow: %s", method, location, type(error).__name__)
            return None
        expected = HTTPStatus.PARTIAL_CONTENT if "Range" in headers else HTTPStatus.OK
        if answer.status in (expected, HTTPStatus.NO_CONTENT):
            self._refusals.pop(method, None)
            return answer.data
        log.debug("%s of %s is repeated with PyArrow: HTTP status %d", method, location, answer.status)
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR and answer.status not in OF_ONE_REQUEST:
            refusals, _ = self._refusals.get(method, (0, 0.0))
            self._refusals[method] = (refusals + 1, time.monotonic())
        return None

    def _is_resting(self, method: str) -> bool:
        """Whether the store is not asked for now: it does not take such requests, or not with these credentials. It is
        asked again later, since a clock may have been wrong, or a policy too strict."""
        refusals, last = self._refusals.get(method, (0, 0.0))
        return refusals >= MOST_REFUSALS and time.monotonic() - last < LONGEST_REST

    @property
    def _credentials(self) -> ReadOnlyCredentials:
        given = self._properties
        return ReadOnlyCredentials(given[S3_ACCESS_KEY_ID], given[S3_SECRET_ACCESS_KEY], given.get(S3_SESSION_TOKEN))


class ObjectFile(InputFile):
    """An object that is read with single requests. PyArrow does what they cannot: its own file is the `other` one."""

    def __init__(self, objects: S3Objects, location: str, find_other: Callable[[], InputFile]) -> None:
        super().__init__(location)
        self.objects = objects
        self.find_other = find_other

    def __len__(self) -> int:
        return len(self.find_other())

    def exists(self) -> bool:
        """Whether the object is in the store; this asks the store."""
        return self.find_other().exists()

    def open(self, seekable: bool = False) -> InputStream:
        """Return a stream. If it has to be `seekable`, PyArrow asks for the size, and reads each part when it is
        needed. So large objects are read, of which only parts are needed, or that may not be in memory as a whole."""
        return self.find_other().open() if seekable else _ObjectStream(self)


class _ObjectStream(RawIOBase):
    """Reads a whole object with one request, which its first read sends. A first read of so many bytes after a seek
    only gets these, and so do those that follow it."""

    def __init__(self, file: ObjectFile) -> None:
        super().__init__()
        self._file = file
        self._begin = 0
        self._whole: InputStream | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return so many bytes, by default all that follow. FileNotFoundError if there is no object."""
        if self._whole is None and self._begin > 0 and size is not None and size > 0:
            part = self._file.objects.get(self._file.location, self._begin, size)
            if part is not None:
                self._begin += len(part)
                return part
        whole = self._read_whole()
        return whole.read() if size is None or size < 0 else whole.read(size)

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Go to a place. One that is not counted from the beginning needs the whole object."""
        if self._whole is None and whence == SEEK_SET:
            self._begin = offset
            return offset
        return self._read_whole().seek(offset, whence)

    def tell(self) -> int:
        return self._whole.tell() if self._whole else self._begin

    def close(self) -> None:
        if self._whole:
            self._whole.close()
        super().close()

    def _read_whole(self) -> InputStream:
        if self._whole is None:
            content = self._file.objects.get(self._file.location) if self._begin == 0 else None
            self._whole = self._file.find_other().open() if content is None else BytesIO(content)
            self._whole.seek(self._begin)
        return self._whole


class _Connections(PoolManager):
    """Connections whose answers have a time limit."""

    def connection_from_pool_key(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        pool = super().connection_from_pool_key(*args, **kwargs)
        limit_answers(pool, LONGEST_ANSWER)
        return pool


@lru_cache(OPEN_CLIENTS)
def _open_connections(connect: float, read: float, certificates: str | None) -> PoolManager:
    """Return connections with these limits in seconds. All clients share them, whatever their credentials are."""
    return _Connections(
        maxsize=CONNECTIONS,
        timeout=Timeout(connect=connect, read=read),
        retries=False,
        ca_certs=certificates,
        # The system probes an idle connection, so that a NAT gateway does not forget it between two commits.
        socket_options=(*HTTPConnection.default_socket_options, *list_keep_alive_options()),
    )


@lru_cache(OPEN_CLIENTS)
def open_s3_objects(properties: Properties) -> S3Objects | None:
    """Return the client for these FileIO properties, with open connections. None if only PyArrow can use them."""
    has_scheme = properties.get(S3_ENDPOINT, "https://").startswith(("http://", "https://"))
    if not all(properties.get(name) for name in NEEDED) or find_proxy(properties) or not has_scheme:
        return None
    try:
        return S3Objects(properties)
    except ValueError:  # of a time limit
        return None


def find_url(location: str, properties: Mapping[str, str]) -> str:
    """Return the address of an object: the one that PyArrow uses with these properties. Raises ValueError if the bucket
    has other signs than names have: after a backslash, the address would be that of another host."""
    _, bucket, path, *_ = urlsplit(location)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise ValueError("must be the name of a bucket")
    key = quote(path, safe="/~")
    if endpoint := properties.get(S3_ENDPOINT):
        scheme, host, base, *_ = urlsplit(endpoint)
        if properties.get(S3_FORCE_VIRTUAL_ADDRESSING, "false") == "true":
            return f"{scheme}://{bucket}.{host}{key}"
        return f"{scheme}://{host}{base.rstrip('/')}/{bucket}{key}"
    host = find_amazon_host(properties[S3_REGION])
    # Amazon's certificate does not hold for the names of buckets with dots.
    return f"https://{host}/{bucket}{key}" if "." in bucket else f"https://{bucket}.{host}{key}"
