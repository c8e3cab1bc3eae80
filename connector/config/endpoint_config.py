"""The endpoint config: which catalog, storage and credentials a task uses."""

from datetime import timedelta
from typing import Annotated, ClassVar, Final

import msgspec

from connector.config.addresses import parse_store_address, parse_webhook_address
from connector.config.advanced_options import AdvancedOptions
from connector.config.catalog import Catalog, GlueCatalog
from connector.config.credentials import Credentials, OlderKeys
from connector.config.definition import Definition, Setting, schema_of
from connector.config.secret import Secret
from connector.config.storage import PREFIX, Storage
from connector.config.sync_schedule import SyncSchedule
from connector.config.values import (
    DEFAULT_UPLOAD_INTERVAL,
    MACHINE_CREDENTIALS,
    WEBHOOK_ADDRESS,
    WITHOUT_DOTS,
    WITHOUT_SLASHES,
    NameCase,
    parse_bucket,
    parse_region,
    parse_signing_secret,
    parse_upload_interval,
)
from protocol.flow import Json

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Notification(Definition, frozen=True, kw_only=True):
    """The webhook that is told of each snapshot which the task commits."""

    url: Annotated[
        Secret,
        Setting(
            "URL",
            "The address to which a message is posted for each snapshot that the task commits. It is kept secret, "
            "because it may contain a token.",
            pattern=WEBHOOK_ADDRESS,
            parse=parse_webhook_address,
        ),
    ]
    secret: Annotated[
        Secret | None,
        Setting(
            "Signing Secret",
            "The secret that signs the messages, as Standard Webhooks says: whsec_ and 24 to 64 bytes in base64.",
            parse=parse_signing_secret,
        ),
    ] = None


class EndpointConfig(Definition, frozen=True, kw_only=True):
    """Where the tables are, and how to get there."""

    title: ClassVar[str] = "Iceberg Endpoint"

    credentials: Annotated[
        Credentials | None,
        Setting(
            "Authentication",
            "How to sign in to AWS, with access to the bucket and the catalog. Not needed for the Local catalog, or "
            "for REST catalogs that vend credentials.",
            keywords={"x-iam-auth": True},
        ),
    ] = None
    bucket: Annotated[
        str,
        Setting(
            "Bucket",
            "The S3 bucket for data files. AWS Glue requires it. A REST catalog may choose the location itself.",
            pattern=WITHOUT_SLASHES,
            parse=parse_bucket,
        ),
    ] = ""
    prefix: Annotated[str, PREFIX] = ""
    region: Annotated[
        str,
        Setting("Region", "The AWS region of the bucket and of AWS Glue. AWS Glue requires it.", parse=parse_region),
    ] = ""
    namespace: Annotated[
        str,
        Setting(
            "Namespace",
            "The namespace of all tables whose binding does not name another.",
            pattern=WITHOUT_DOTS,
            min_length=1,
        ),
    ]
    upload_interval: Annotated[
        timedelta,
        Setting(
            "Upload Interval",
            "How often small transactions are committed: an ISO 8601 duration of at most PT4H.",
            parse=parse_upload_interval,
            is_nonsensitive=True,
        ),
    ] = DEFAULT_UPLOAD_INTERVAL
    sync_schedule: Annotated[
        SyncSchedule,
        Setting(
            "Sync Schedule",
            "Commit small transactions more often at certain times of the week. By default, the upload interval always "
            "applies.",
            is_nonsensitive=True,
        ),
    ] = msgspec.field(name="syncSchedule", default=SyncSchedule())
    hard_delete: Annotated[
        bool,
        Setting(
            "Hard Delete",
            "Delete the row of a document that was deleted. By default, the row stays, and its field _meta/op is d. "
            "Only for bindings without delta updates: with delta updates, a deletion is one more row.",
            is_nonsensitive=True,
        ),
    ] = False
    s3_endpoint: Annotated[
        str,
        Setting(
            "S3 Endpoint", "The address of an S3-compatible store. The default is Amazon S3.", parse=parse_store_address
        ),
    ] = ""
    catalog: Annotated[
        Catalog, Setting("Catalog", "The Iceberg catalog that keeps the tables. The default is AWS Glue.")
    ] = GlueCatalog()
    storage: Annotated[
        Storage | None,
        Setting(
            "Storage",
            "The store for data files, if it is not the S3 bucket above. For REST, SQL and Hive catalogs. AWS Glue can "
            "have Amazon S3, with other credentials.",
        ),
    ] = None
    notify: Annotated[
        Notification | None,
        Setting("Notifications", "A webhook that is told of each snapshot. By default, none is told."),
    ] = None
    advanced: Annotated[
        AdvancedOptions,
        Setting(
            "Advanced Options",
            "Options that most materializations do not need.",
            is_advanced=True,
            keywords={"type": ["object", "null"]},  # as in the public connector
        ),
    ] = AdvancedOptions()

    def name_in_catalog(self, name: str) -> str:
        """Return the name of a namespace or a table in the case that the catalog has it in."""
        match self.advanced.table_identifier_case:
            case NameCase.LOWERCASE:
                return name.lower()
            case NameCase.UPPERCASE:
                return name.upper()
            case NameCase.PRESERVE:
                return name

    @property
    def own_namespace(self) -> str:
        """The namespace of tables whose binding does not name another, as the catalog has it."""
        return self.name_in_catalog(self.namespace)

    @property
    def commit_interval(self) -> timedelta | SyncSchedule:
        """How often small transactions are committed."""
        return self.sync_schedule if self.sync_schedule.frequency else self.upload_interval

    @property
    def allows_machine_credentials(self) -> bool:
        """Whether a feature flag allows the credentials of the machine."""
        return MACHINE_CREDENTIALS in self.advanced.feature_flags


ENDPOINT_SCHEMA: Final[Json] = {"$schema": SCHEMA_DIALECT, **schema_of(EndpointConfig, OlderKeys)}
