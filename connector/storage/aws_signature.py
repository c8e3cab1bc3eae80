"""Signs requests that write an object to S3: AWS Signature Version 4.

It is not botocore's, because Spark's workers sign, too: botocore would take 20 ms and 4.5 MB of each. A test compares
both signatures.
"""

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from connector.config.secret import Secret

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "s3"
DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


@dataclass(frozen=True)
class S3Credentials:
    """Credentials for a region, which sign requests."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None
    region: str

    def sign_put(self, url: str, content: bytes, now: datetime) -> dict[str, str]:
        """Return the headers of a PUT request without a query. The path of `url` is quoted. `now` is in UTC."""
        scheme, host, path, *_ = urlsplit(url)
        time = f"{now:%Y%m%dT%H%M%SZ}"
        signed = {
            # Buckets that lock objects demand it, though the signature has a digest, too.
            "content-md5": b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
            "host": host.lower().removesuffix(DEFAULT_PORTS[scheme]),
            "x-amz-content-sha256": hashlib.sha256(content).hexdigest(),
            "x-amz-date": time,
        }
        if self.session_token:
            signed["x-amz-security-token"] = self.session_token.reveal()
        names = ";".join(signed)  # in the alphabet's order, as the signature demands
        fields = "".join(f"{name}:{value}\n" for name, value in signed.items())
        request = "\n".join(("PUT", path, "", fields, names, signed["x-amz-content-sha256"]))
        scope = f"{now:%Y%m%d}/{self.region}/{SERVICE}/aws4_request"
        text = "\n".join((ALGORITHM, time, scope, hashlib.sha256(request.encode()).hexdigest()))
        key = f"AWS4{self.secret_access_key.reveal()}".encode()
        for part in scope.split("/"):
            key = _authenticate(key, part)
        signature = _authenticate(key, text).hex()
        credential = f"{self.access_key_id}/{scope}"
        signed["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
        return signed


def _authenticate(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
