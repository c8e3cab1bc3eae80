"""Requests that write an object are signed as botocore signs them."""

from base64 import b64encode
from datetime import UTC, datetime
from hashlib import md5
from typing import Final

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from connector.config.secret import Secret
from connector.storage.aws_signature import S3Credentials

URLS: Final = (
    "http://localhost:9000/bucket/a%20b/%C3%A4~t/name%3Dx%252Fy",
    "http://LOCALHOST:80/bucket/k",
    "https://bucket.s3.eu-west-1.amazonaws.com/k",
    "https://s3.example:443/k",
    "https://s3.example:80/k",
    "http://[::1]:9000/bucket/k",
)
SECRET: Final = "the/secret+of-this-user"


@pytest.mark.parametrize("token", [None, "a/token+of-a=session"])
@pytest.mark.parametrize("content", [b"", b"content"])
@pytest.mark.parametrize("url", URLS)
def test_the_signature_is_that_of_botocore(url: str, content: bytes, token: str | None) -> None:
    told = sign_by_botocore(url, content, token)
    when = datetime.strptime(told["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    credentials = S3Credentials("AKIAEXAMPLE", Secret(SECRET), Secret(token) if token else None, "eu-west-1")
    own = credentials.sign_put(url, content, when)
    del own["host"]  # botocore leaves it to the client of HTTP
    assert own == told


def sign_by_botocore(url: str, content: bytes, token: str | None) -> dict[str, str]:
    digest = b64encode(md5(content, usedforsecurity=False).digest()).decode()
    request = AWSRequest("PUT", url, {"Content-MD5": digest}, content)
    S3SigV4Auth(ReadOnlyCredentials("AKIAEXAMPLE", SECRET, token), "s3", "eu-west-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def test_a_signer_does_not_show_its_secrets() -> None:
    credentials = S3Credentials("AKIAEXAMPLE", Secret(SECRET), Secret("a-token-of-a-session"), "eu-west-1")
    assert SECRET not in repr(credentials)
    assert "a-token-of-a-session" not in repr(credentials)
