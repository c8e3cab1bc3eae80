"""Writes small objects to S3 without the ten megabytes of memory that PyArrow takes for each of them. Deletes objects.

PyArrow fills that memory even for an object of five kilobytes. This was a fifth of a commit's processor time, and four
fifths of that of a small data file. To delete an object, PyArrow sends three requests: it looks for the object, and
afterwards it creates an empty one with the name of the directory. If a request fails, PyArrow does the same. So PyArrow
alone decides how failed requests are repeated, and what errors say.
"""

import base64
import hashlib
import logging
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final
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
)
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from connector.model.properties import Properties
from connector.storage.s3_environment import find_amazon_host, find_certificates, find_proxy

log = logging.getLogger(__name__)

OPEN_CLIENTS: Final = 32
CONNECTIONS: Final = 8  # kept open; as many commits are made at once
# All are needed. Without a region, PyArrow asks Amazon for it.
NEEDED: Final = frozenset({S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_REGION})
TIMEOUT: Final = "60"  # seconds
UNUSUAL: Final = frozenset({"", ".", ".."})  # parts of a path that PyArrow refuses, or that HTTP clients remove


class S3Objects:
    """Writes and deletes objects with the credentials and at the address of FileIO properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        connect, read = (float(properties.get(name, TIMEOUT)) for name in (S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT))
        self._pool = _open_connections(connect, read, find_certificates())
        self._refused = set[str]()  # methods of requests

    def put(self, location: str, content: bytes) -> bool:
        """Write an object in one request. Returns False if it may not be written."""
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        return self._send("PUT", location, content, {"Content-MD5": base64.b64encode(digest).decode()})

    def delete(self, location: str) -> bool:
        """Delete an object in one request. Returns False if it may not be deleted. A missing one is no error."""
        return self._send("DELETE", location, b"", {})

    def _send(self, method: str, location: str, content: bytes, headers: dict[str, str]) -> bool:
        if method in self._refused or not UNUSUAL.isdisjoint(urlsplit(location).path[1:].split("/")):
            return False
        try:
            url = find_url(location, self._properties)
            request = AWSRequest(method, url, headers, content)
            S3SigV4Auth(self._credentials, "s3", self._properties[S3_REGION]).add_auth(request)
            answer = self._pool.request(method, url, body=content, headers=dict(request.headers))
        except (HTTPError, ValueError) as error:  # ValueError: of a header or an address, which it would quote
            log.debug("%s of %s is repeated with PyArrow: %s", method, location, type(error).__name__)
            return False
        if answer.status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            return True
        log.debug("%s of %s is repeated with PyArrow: HTTP status %d", method, location, answer.status)
        # A store that does not take such requests, or not with these credentials, is not asked again.
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._refused.add(method)
        return False

    @property
    def _credentials(self) -> ReadOnlyCredentials:
        given = self._properties
        return ReadOnlyCredentials(given[S3_ACCESS_KEY_ID], given[S3_SECRET_ACCESS_KEY], given.get(S3_SESSION_TOKEN))


@lru_cache(OPEN_CLIENTS)
def _open_connections(connect: float, read: float, certificates: str | None) -> PoolManager:
    """Return connections with these limits in seconds. All clients share them, whatever their credentials are."""
    timeout = Timeout(connect=connect, read=read)
    return PoolManager(maxsize=CONNECTIONS, timeout=timeout, retries=False, ca_certs=certificates)


@lru_cache(OPEN_CLIENTS)
def open_s3_objects(properties: Properties) -> S3Objects | None:
    """Return the client for these FileIO properties, with open connections. None if only PyArrow can use them."""
    has_scheme = properties.get(S3_ENDPOINT, "https://").startswith(("http://", "https://"))
    if not properties.keys() >= NEEDED or find_proxy(properties) or not has_scheme:
        return None
    try:
        return S3Objects(properties)
    except ValueError:  # of a time limit
        return None


def find_url(location: str, properties: Mapping[str, str]) -> str:
    """Return the address of an object: the one that PyArrow uses with these properties."""
    _, bucket, path, *_ = urlsplit(location)
    key = quote(path, safe="/~")
    if endpoint := properties.get(S3_ENDPOINT):
        scheme, host, base, *_ = urlsplit(endpoint)
        if properties.get(S3_FORCE_VIRTUAL_ADDRESSING, "false") == "true":
            return f"{scheme}://{bucket}.{host}{key}"
        return f"{scheme}://{host}{base.rstrip('/')}/{bucket}{key}"
    host = find_amazon_host(properties[S3_REGION])
    # Amazon's certificate does not hold for the names of buckets with dots.
    return f"https://{host}/{bucket}{key}" if "." in bucket else f"https://{bucket}.{host}{key}"
