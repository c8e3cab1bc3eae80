"""Writes small objects to S3 without the ten megabytes of memory that PyArrow takes for each object.

PyArrow fills that memory even for an object of five kilobytes. This was a fifth of a commit's processor time, and four
fifths of that of a small data file. If a request fails, PyArrow writes the object. So PyArrow alone decides how failed
requests are repeated, and what errors say.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROXY_URI,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from connector.config.secret import Secret
from connector.model.properties import Properties
from connector.storage.aws_signature import S3Credentials

log = logging.getLogger(__name__)

OPEN_CLIENTS: Final = 32
CONNECTIONS: Final = 8  # kept open; as many commits are made at once
# All are needed. Without a region, PyArrow asks Amazon for it.
NEEDED: Final = frozenset({S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_REGION})
TIMEOUT: Final = "60"  # seconds
UNUSUAL: Final = frozenset({"", ".", ".."})  # parts of a path that PyArrow refuses, or that HTTP clients remove


class S3Objects:
    """Writes objects with the credentials and to the address of FileIO properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        connect, read = (float(properties.get(name, TIMEOUT)) for name in (S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT))
        self._pool = _open_connections(connect, read)
        token = properties.get(S3_SESSION_TOKEN)
        self._credentials = S3Credentials(
            properties[S3_ACCESS_KEY_ID],
            Secret(properties[S3_SECRET_ACCESS_KEY]),
            Secret(token) if token else None,
            properties[S3_REGION],
        )
        self._is_refused = False

    def put(self, location: str, content: bytes) -> bool:
        """Write an object in one request. Returns False if it may not be written."""
        if self._is_refused or not UNUSUAL.isdisjoint(urlsplit(location).path[1:].split("/")):
            return False
        url = find_url(location, self._properties)
        headers = self._credentials.sign_put(url, content, datetime.now(UTC))
        try:
            answer = self._pool.request("PUT", url, body=content, headers=headers)
        except HTTPError as error:
            log.debug("%s is written again with PyArrow: %s", location, type(error).__name__)
            return False
        if answer.status == HTTPStatus.OK:
            return True
        log.debug("%s is written again with PyArrow: HTTP status %d", location, answer.status)
        # A store that does not take such requests, or not with these credentials, is not asked again.
        self._is_refused = answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return False


@lru_cache(OPEN_CLIENTS)
def _open_connections(connect: float, read: float) -> PoolManager:
    """Return connections with these limits in seconds. All clients share them, whatever their credentials are."""
    return PoolManager(maxsize=CONNECTIONS, timeout=Timeout(connect=connect, read=read), retries=False)


@lru_cache(OPEN_CLIENTS)
def open_s3_objects(properties: Properties) -> S3Objects | None:
    """Return the client for these FileIO properties, with open connections. None if only PyArrow can use them."""
    if not properties.keys() >= NEEDED or S3_PROXY_URI in properties:
        return None
    return S3Objects(properties)


def find_url(location: str, properties: Mapping[str, str]) -> str:
    """Return the address of an object: the one that PyArrow uses with these properties."""
    _, bucket, path, *_ = urlsplit(location)
    key = quote(path, safe="/~")
    if endpoint := properties.get(S3_ENDPOINT):
        scheme, host, base, *_ = urlsplit(endpoint)
        if properties.get(S3_FORCE_VIRTUAL_ADDRESSING, "false") == "true":
            return f"{scheme}://{bucket}.{host}{key}"
        return f"{scheme}://{host}{base.rstrip('/')}/{bucket}{key}"
    region = properties[S3_REGION]
    host = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    # Amazon's certificate does not hold for the names of buckets with dots.
    return f"https://{host}/{bucket}{key}" if "." in bucket else f"https://{bucket}.{host}{key}"
