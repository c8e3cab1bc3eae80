"""Signs requests to Amazon's REST catalogs (SigV4)."""

from hashlib import sha256
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from requests import PreparedRequest
from requests.auth import AuthBase

from connector.iceberg.files.aws_keys import AwsKeys, frozen


class AwsSignature(AuthBase):
    """Signs every request with keys that are valid now."""

    def __init__(self, keys: AwsKeys, region: str, service: str) -> None:
        self._keys, self._region, self._service = keys, region, service

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        url = urlsplit(str(request.url))
        body = request.body or b""
        assert isinstance(body, bytes), "PyIceberg streams nothing"
        signed = AWSRequest(
            method=request.method,
            url=url._replace(query="").geturl(),
            params=dict(parse_qsl(url.query, keep_blank_values=True)),
            data=body,
            headers={"X-Amz-Content-SHA256": sha256(body).hexdigest()},
        )
        SigV4Auth(frozen(self._keys), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers))
        return request

    def renew(self) -> None:
        self._keys.discard()
