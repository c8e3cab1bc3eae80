"""What requests for files in S3 take from the environment: the store's address, a proxy, and trusted certificates.

boto3 reads these variables itself, and so do the clients of Google and Azure. PyArrow's client of S3 does not. Which
checksums that client sends, only the environment can tell it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from pyiceberg.io import S3_ENDPOINT, S3_PROXY_URI, S3_REGION

from connector.host.errors import UserError
from connector.host.processes import NOT_INHERITED
from connector.host.redaction import hide_obtained

# The variables of AWS's tools that name another address of S3 than Amazon's. The first that is set counts.
ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
CERTIFICATE_VARIABLES: Final = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")  # boto3 uses the first that is set
# PyArrow has no option for them. Its client reads them once, when it is made.
CHECKSUM_VARIABLES: Final = frozenset({"AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"})
AMAZON: Final = re.compile(r"([^/]*://)?[^/]*\.amazonaws\.com(\.cn)?(:\d+)?/?")
_MAKING_A_CLIENT: Final = Lock()


def find_endpoint() -> str:
    """Return the address of S3 that the environment names, or an empty text. PyArrow would find it too, but not on a
    cluster's machines, and not all requests are PyArrow's."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return ""
    return _first_of(ENDPOINT_VARIABLES)


def find_amazon_host(region: str) -> str:
    """Return the host of Amazon S3 in a region, which may be unknown."""
    ending = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return ".".join(filter(None, ("s3", region, ending)))


def find_proxy(properties: Mapping[str, str]) -> str | None:
    """Return the address of the proxy for requests with these FileIO properties: that of the property, or that of the
    environment, unless NO_PROXY names the store. All clients can read it.

    Raises UserError if the environment's address is not one of an HTTP proxy.
    """
    if proxy := properties.get(S3_PROXY_URI):
        return _quote_user(proxy)
    address = properties.get(S3_ENDPOINT) or find_amazon_host(properties.get(S3_REGION, ""))
    address = address if "://" in address else f"https://{address}"
    if not (found := _find_in_environment(address)):
        return None
    proxy = _quote_user(found if "://" in found else f"http://{found}")
    if not _is_http(proxy):
        raise UserError(
            f"the proxy that the environment names for the object store at {address} cannot be used: it must have an "
            "address like http://proxy:3128. Correct the variables HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or name the "
            "object store in NO_PROXY."
        )
    if "@" in proxy:
        hide_obtained(found)
        hide_obtained(proxy)
    return proxy


def find_certificates() -> str | None:
    """Return the file with the certificates that are trusted instead of the machine's, if the environment names one."""
    return _first_of(CERTIFICATE_VARIABLES) or None


@contextmanager
def choose_checksums(properties: Mapping[str, str]) -> Iterator[None]:
    """Let PyArrow's client that is made within this context send the checksums that its store knows.

    By default, the client appends one to the body. Some stores other than Amazon's refuse or damage such an object.
    Amazon demands a checksum for a bucket with an Object Lock.
    """
    endpoint = properties.get(S3_ENDPOINT, "")
    is_amazon = not endpoint or AMAZON.fullmatch(endpoint)
    with _MAKING_A_CLIENT:
        if not is_amazon:
            NOT_INHERITED.update(CHECKSUM_VARIABLES - os.environ.keys())
        own = CHECKSUM_VARIABLES & NOT_INHERITED
        # They are not removed again: other threads may read the environment meanwhile.
        os.environ.update(dict.fromkeys(own, "when_supported" if is_amazon else "when_required"))
        yield


def _find_in_environment(address: str) -> str | None:
    from requests.utils import get_environ_proxies, select_proxy  # slow to import

    try:
        return select_proxy(address, get_environ_proxies(address))
    except ValueError:  # of a malformed address, which the client that uses it explains
        return None


def _quote_user(proxy: str) -> str:
    """Encode the user and the password. If they have some characters, PyArrow refuses the address, and quotes it."""
    before, at, host = proxy.rpartition("@")
    scheme, separator, user = before.partition("://")
    parts = (quote(unquote(part), safe="") for part in user.split(":", 1))
    return f"{scheme}{separator}{':'.join(parts)}{at}{host}" if at else proxy


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:  # of a malformed address
        return False


def _first_of(variables: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, variables)), "")
