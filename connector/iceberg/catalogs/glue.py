"""AWS Glue as a catalog."""

import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    InvalidRegionError,
    ReadTimeoutError,
    SSLError,
)
from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from connector.config import catalog as catalog_config
from connector.config.catalog_properties import GLUE_PROPERTIES
from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.iceberg.catalogs.registered_tables import TablesInStore
from connector.iceberg.catalogs.table_optimizers import OptimizerCatalog, TableOptimizer
from connector.model.table_identifier import TableIdentifier
from connector.storage.aws_credentials import FreshAwsCredentials
from connector.storage.aws_errors import CREDENTIAL_ERRORS, ENVIRONMENT_ERRORS, has_code, is_transient, read_answer
from connector.storage.aws_sessions import CLIENT_CONFIG, open_aws_session
from connector.storage.file_access import FileCredentials

log = logging.getLogger(__name__)

# What people set in Glue beside Iceberg's metadata. A commit sends the whole table.
KEPT: Final = ("Description", "Owner", "Retention")


class _GlueCatalog(TablesInStore, GlueCatalog, OptimizerCatalog):
    """PyIceberg's catalog, but a commit is refused if the table has other metadata than when it was loaded, and keeps
    the descriptions that people have set in Glue."""

    def __init__(self, credentials: FileCredentials, client: Any, properties: Mapping[str, str]) -> None:
        super().__init__("glue", client=client, **properties)
        self._credentials = credentials
        self._catalog_ids: dict[str, str] = {}  # by database: Glue asks for it with each optimizer
        self._optimizers = GlueOptimizers(client)
        self._replaced = threading.local()  # `table`: Glue's table that the commit of this thread replaces

    def view_exists(self, identifier: str | Identifier) -> bool:  # noqa: ARG002  # the signature is PyIceberg's
        return False  # Glue's views are tables of another kind, which load_table refuses

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        """Return the table that a commit was built on.

        This is Glue's optimistic lock: PyIceberg sends the version id of the table that it has read here. If the
        table's metadata location is not the one that the commit was built on, the commit is refused.
        """
        base = self._base.table
        self._catalog_ids[glue_table["DatabaseName"]] = glue_table.get("CatalogId", "")
        if base is None:
            return super()._convert_glue_to_iceberg(glue_table)
        if glue_table["Parameters"].get(METADATA_LOCATION) != base.metadata_location:
            raise CommitFailedException(f"table {TableIdentifier.of(base)} has been changed since it was loaded")
        self._replaced.table = glue_table
        return base

    def _update_glue_table(self, database_name: str, table_name: str, table_input: Any, version_id: str) -> None:
        """Replace a table in Glue, and keep what people have set there.

        If its answer is lost, botocore sends the request again. If the first one was done, Glue refuses the second one:
        then the table has the commit's metadata, or has had it.
        """
        if base := self._base.table:
            docs = {field.name: field.doc for field in base.schema().fields}
            _keep_descriptions(table_input, self._replaced.table, docs)
        try:
            super()._update_glue_table(database_name, table_name, table_input, version_id)
        except CommitFailedException:
            table = super()._convert_glue_to_iceberg(self._get_glue_table(database_name, table_name))
            earlier = (entry.metadata_file for entry in table.metadata.metadata_log)
            if table_input["Parameters"][METADATA_LOCATION] not in (table.metadata_location, *earlier):
                raise

    def read_optimizer(self, table: TableIdentifier, optimizer: TableOptimizer) -> Mapping[str, Any] | None:
        """Return the configuration of an optimizer of a loaded table. None if it is not enabled, or is not known."""
        return self._optimizers.read(self._catalog_ids[table.namespace], table, optimizer)


def _keep_descriptions(new: Any, old: Mapping[str, Any], docs: Mapping[str, str | None]) -> None:
    """Add to Glue's new table what the old one has, and Iceberg's metadata has not. `docs` of columns are Iceberg's."""
    for name in KEPT:
        if name in old:
            new.setdefault(name, old[name])
    columns = old.get("StorageDescriptor", {}).get("Columns", ())
    comments = {each["Name"]: each["Comment"] for each in columns if each.get("Comment")}
    for column in new["StorageDescriptor"]["Columns"]:
        comment = comments.get(column["Name"])
        if comment and comment != docs.get(column["Name"]):  # otherwise it was a doc, and may have been removed
            column.setdefault("Comment", comment)


class GlueOptimizers:
    """Asks AWS Glue for the optimizers of its tables."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._has_told = False  # that optimizers are not known

    def read(self, catalog_id: str, table: TableIdentifier, optimizer: TableOptimizer) -> Mapping[str, Any] | None:
        """Return the configuration of an optimizer. None if it is not enabled, or is not known."""
        namespace, name = table
        try:
            answer = self._client.get_table_optimizer(
                CatalogId=catalog_id, DatabaseName=namespace, TableName=name, Type=optimizer
            )
        except self._client.exceptions.EntityNotFoundException:
            return None
        except (ClientError, BotoCoreError) as error:
            # The permission is optional. An optimizer and the connector may also work at the same time.
            if not self._has_told and not is_transient(error):
                self._has_told = True
                log.info(
                    "AWS Glue does not say whether it has optimizers for the tables (%s), so the connector compacts "
                    "them. If Glue compacts them too, allow glue:GetTableOptimizer to these credentials.",
                    read_answer(error),
                )
            return None
        configuration: Mapping[str, Any] = answer["TableOptimizer"].get("configuration", {})
        return configuration if configuration.get("enabled") else None


def open_client(aws: FreshAwsCredentials, region: str, endpoint: str | None = None) -> Any:
    """Return a client of Glue. This sends no request. `endpoint` is another address than that of the region."""
    client = open_aws_session(aws, region).client("glue", endpoint_url=endpoint, config=CLIENT_CONFIG)
    # Made here: if several threads needed the exception classes first, each of them would make other ones.
    _ = client.exceptions
    return client


def open_glue(
    catalog: catalog_config.GlueCatalog,
    region: str,
    aws: FreshAwsCredentials,
    file_addresses: Mapping[str, str],
    credentials: FileCredentials,
) -> GlueCatalog:
    """Open the catalog. This sends no request. `aws` signs requests to Glue, and `credentials` open files."""
    client = open_client(aws, region)
    if catalog.glue_id:
        # PyIceberg reads glue.id only for a client that it makes itself.
        def add_catalog_id(params: dict[str, object], **_: object) -> None:
            params.setdefault("CatalogId", catalog.glue_id)

        client.meta.events.register("provide-client-params.glue", add_catalog_id)
    properties = {name: value for name, value in catalog.properties.items() if name in GLUE_PROPERTIES}
    return _GlueCatalog(credentials, client, {**file_addresses, **properties})


def translate_errors(region: str) -> AbstractContextManager[None]:
    """Translate the errors of requests to Glue."""
    place = f"AWS Glue in {region}"
    return translate(GLUE_ERRORS, lambda error: {"of": "", "place": place, "answer": read_answer(error)})


GLUE_ERRORS: Final[ErrorTable] = (
    Translation(
        is_transient,
        RetryableError,
        "{place} is not able to answer now: {answer}.",
    ),
    *CREDENTIAL_ERRORS,
    Translation(
        has_code("AccessDeniedException"),
        UserError,
        "{place} forbids this ({answer}). Allow it in the policy of these credentials, or set others in /credentials.",
    ),
    Translation(
        is_a(ClientError),
        UserError,
        "{place} refused the request ({answer}). Check /credentials, /region and /catalog/glue_id.",
    ),
    Translation(
        is_a(InvalidRegionError),
        UserError,
        "{place} has no address: that is not a region's name. Correct /region.",
    ),
    Translation(
        is_a(ConnectTimeoutError, ReadTimeoutError),
        RetryableError,
        "{place} did not answer in time. Check that the network allows it.",
    ),
    *ENVIRONMENT_ERRORS,
    Translation(
        is_a(SSLError),
        UserError,
        "{place} has no secure connection: this machine does not trust its certificate. To trust an authority of "
        "your own, such as that of a proxy, set the variable AWS_CA_BUNDLE to a file with its certificate.",
    ),
    Translation(
        is_a(BotoCoreError),
        RetryableError,
        "{place} cannot be reached. Check /region, and that the network allows it.",
    ),
)
