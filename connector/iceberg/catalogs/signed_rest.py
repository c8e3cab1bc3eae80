"""Amazon's REST catalogs, for which each request is signed with SigV4."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urljoin, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.typedef import Identifier
from requests import PreparedRequest
from requests.auth import AuthBase

from connector.config import catalog as catalog_config
from connector.config.catalog_properties import SIGNED, SIGNING_NAME, SIGNING_REGION
from connector.iceberg.catalogs.rest import TIME_LIMITS, RestTables
from connector.iceberg.catalogs.table_optimizers import OptimizerCatalog, TableOptimizer
from connector.model.table_identifier import TableIdentifier
from connector.storage.aws_credentials import FreshAwsCredentials
from connector.storage.aws_sessions import convert_to_botocore
from connector.storage.file_access import FileCredentials

if TYPE_CHECKING:
    from connector.iceberg.catalogs.glue import GlueOptimizers

DEFAULT_SERVICE: Final = "execute-api"  # PyIceberg's default
S3_TABLES: Final = "s3tables"
GLUE: Final = "glue"


class _TableBucket(RestTables):
    """Amazon S3 Tables, which drops a table only with its files."""

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = True) -> None:
        super().drop_table(identifier, purge_requested)


class _GlueRest(RestTables, OptimizerCatalog):
    """AWS Glue's REST endpoint. It does not know Glue's optimizers: Glue's own requests ask for them, at the same
    address."""

    def __init__(self, catalog_id: str, open_optimizers: "Callable[[], GlueOptimizers]", *settings: Any) -> None:
        super().__init__(*settings)
        self._catalog_id, self._open_optimizers = catalog_id, open_optimizers

    @cached_property
    def _optimizers(self) -> "GlueOptimizers":
        return self._open_optimizers()

    def read_optimizer(self, table: TableIdentifier, optimizer: TableOptimizer) -> Mapping[str, Any] | None:
        """Return the configuration of an optimizer of a table. None if it is not enabled, or is not known."""
        return self._optimizers.read(self._catalog_id, table, optimizer)


def open_signed(
    catalog: catalog_config.RestCatalog,
    region: str,
    aws: FreshAwsCredentials,
    file_addresses: Mapping[str, str],
    credentials: FileCredentials,
) -> RestCatalog:
    """Open a REST catalog whose config asks for signatures, such as Glue's."""
    given = catalog.properties
    service = given.get(SIGNING_NAME) or DEFAULT_SERVICE
    region = given.get(SIGNING_REGION) or region
    sign_in = _AwsSignature(aws, region, service)
    # With this property, PyIceberg would sign a second time, with credentials that it finds itself.
    others = {name: value for name, value in given.items() if name != SIGNED}
    addresses = {"uri": catalog.uri, "warehouse": catalog.warehouse}
    settings = (sign_in, credentials, TIME_LIMITS, {**file_addresses, **others, **addresses})
    if service == S3_TABLES:
        return _TableBucket(*settings)
    if service == GLUE:
        return _GlueRest(catalog.warehouse, partial(_open_optimizers, aws, region, catalog.uri), *settings)
    return RestTables(*settings)


def _open_optimizers(aws: FreshAwsCredentials, region: str, uri: str) -> "GlueOptimizers":
    from connector.iceberg.catalogs.glue import GlueOptimizers, open_client  # imports boto3

    return GlueOptimizers(open_client(aws, region, urljoin(uri, "/")))


def open_s3_tables(
    catalog: catalog_config.S3TablesCatalog,
    aws: FreshAwsCredentials,
    file_addresses: Mapping[str, str],
    credentials: FileCredentials,
) -> RestCatalog:
    """Open the catalog of a table bucket."""
    sign_in = _AwsSignature(aws, catalog.region, S3_TABLES)
    return _TableBucket(
        sign_in, credentials, TIME_LIMITS, {**file_addresses, "uri": catalog.uri, "warehouse": catalog.arn}
    )


class _AwsSignature(AuthBase):
    """Signs each request with credentials that are valid now."""

    def __init__(self, credentials: FreshAwsCredentials, region: str, service: str) -> None:
        self._credentials, self._region, self._service = credentials, region, service

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
        SigV4Auth(convert_to_botocore(self._credentials), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers))
        return request

    def renew(self) -> None:
        """Get new credentials for the next request: the server has refused these."""
        self._credentials.discard()
