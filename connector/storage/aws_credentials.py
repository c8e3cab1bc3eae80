"""AWS credentials that are always valid, and how the clients of files get them.

Nothing of boto3 is imported here: it takes a tenth of the time to open a session, and credentials that the config has
need none of it.
"""

from typing import TypeAlias

from pyiceberg.io import S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_SESSION_TOKEN

from connector.config.credentials import AwsCredentials, AwsIam
from connector.host.refresh import Lease, Refreshed
from connector.storage.file_access import S3_EXPIRES_AT_MS

FreshAwsCredentials: TypeAlias = Refreshed[AwsCredentials]


def keep_given_credentials(given: AwsCredentials | AwsIam) -> FreshAwsCredentials:
    """Return the credentials that the config has."""
    credentials = given.keys if isinstance(given, AwsIam) else given
    return Refreshed("the AWS credentials", lambda: Lease.until(credentials, None))


def read_file_credentials(credentials: FreshAwsCredentials) -> dict[str, str]:
    """Return the credentials as FileIO properties."""
    lease = credentials.current()
    found = {
        S3_ACCESS_KEY_ID: lease.value.access_key_id,
        S3_SECRET_ACCESS_KEY: lease.value.secret_access_key.reveal(),
    }
    if lease.value.session_token:
        found[S3_SESSION_TOKEN] = lease.value.session_token.reveal()
    if lease.expires_at is not None:
        found[S3_EXPIRES_AT_MS] = str(int(lease.expires_at * 1000))
    return found
