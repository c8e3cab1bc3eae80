"""Amazon's REST catalogs, to which every request is signed."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.typedef import Identifier

from connector.config import catalog as catalog_config
from connector.config.catalog_properties import SIGNED, SIGNING_NAME, SIGNING_REGION
from connector.iceberg.catalogs.aws_signature import AwsSignature
from connector.iceberg.catalogs.rest import RestTables
from connector.iceberg.catalogs.time_limits import TIME_LIMITS
from connector.iceberg.files.aws_keys import AwsKeys
from connector.iceberg.files.file_access import FileKeys

DEFAULT_SERVICE: Final = "execute-api"  # as PyIceberg has it
S3_TABLES: Final = "s3tables"


class _TableBucket(RestTables):
    """Amazon S3 Tables, which drops no table without its files."""

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = True) -> None:
        super().drop_table(identifier, purge_requested)


def open_signed(
    catalog: catalog_config.RestCatalog, region: str, aws: AwsKeys, file_properties: Mapping[str, str], keys: FileKeys
) -> RestCatalog:
    given = dict(catalog.properties)
    service = given.get(SIGNING_NAME) or DEFAULT_SERVICE
    kind = _TableBucket if service == S3_TABLES else RestTables
    sign_in = AwsSignature(aws, given.get(SIGNING_REGION) or region, service)
    # With it, PyIceberg would sign a second time, with keys that it finds itself.
    others = {name: value for name, value in given.items() if name != SIGNED}
    addresses = {"uri": catalog.uri, "warehouse": catalog.warehouse}
    return kind(sign_in, keys, TIME_LIMITS, {**file_properties, **others, **addresses})


def open_s3_tables(
    catalog: catalog_config.S3TablesCatalog, aws: AwsKeys, file_properties: Mapping[str, str], keys: FileKeys
) -> RestCatalog:
    sign_in = AwsSignature(aws, catalog.region, S3_TABLES)
    return _TableBucket(sign_in, keys, TIME_LIMITS, {**file_properties, "uri": catalog.uri, "warehouse": catalog.arn})
