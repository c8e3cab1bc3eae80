"""AWS keys that are always valid: the config's own, those of an assumed role, or the machine's."""

import time
from typing import Final, TypeAlias

import boto3
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session
from pyiceberg.io import S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_SESSION_TOKEN

from connector.config.credentials import AwsCredentials, AwsIam, AwsRole, MachineCredentials
from connector.config.secret import Secret
from connector.host.errors import RetryableError, UserError
from connector.host.refresh import Lease, Refreshed
from connector.storage.aws_errors import is_refusal
from connector.storage.file_access import S3_EXPIRES_AT_MS

FreshAwsCredentials: TypeAlias = Refreshed[AwsCredentials]

# botocore may retry: a repeated UpdateTable may find its own first try and look like a conflict, but the fence tells.
CLIENT_CONFIG: Final = Config(
    connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 4, "mode": "standard"}
)
MACHINE_CREDENTIALS_HOLD: Final = 600.0  # seconds: botocore renews the machine's keys before less than this is left


def open_aws_credentials(
    credentials: AwsCredentials | AwsIam | AwsRole | MachineCredentials, region: str
) -> FreshAwsCredentials:
    """`region` is where a role is assumed."""
    match credentials:
        case AwsCredentials():
            return Refreshed("the AWS keys", lambda: Lease.until(credentials, None))
        case AwsIam():
            return Refreshed("the AWS keys", lambda: Lease.until(credentials.keys, None))
        case AwsRole():
            return Refreshed("the keys of the AWS role", lambda: _assume(credentials, region))
        case MachineCredentials():
            return Refreshed("the machine's AWS keys", _find_machine_credentials)


def session(credentials: FreshAwsCredentials, region: str) -> boto3.Session:
    """A session whose clients sign with keys that are valid at that moment."""
    core = get_session()
    core.register_component("credential_provider", CredentialResolver([_Provider(credentials)]))
    return boto3.Session(botocore_session=core, region_name=region)


def file_credentials(credentials: FreshAwsCredentials) -> dict[str, str]:
    """The keys as FileIO properties."""
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


def to_botocore(credentials: FreshAwsCredentials) -> ReadOnlyCredentials:
    """The keys in botocore's form."""
    now = credentials.current().value
    token = now.session_token.reveal() if now.session_token else None
    return ReadOnlyCredentials(now.access_key_id, now.secret_access_key.reveal(), token)


class _Renewed(Credentials):  # type: ignore[misc]  # botocore has no types
    """botocore asks for these with every request."""

    def __init__(self, credentials: FreshAwsCredentials) -> None:
        super().__init__("", "")
        self._credentials = credentials

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return to_botocore(self._credentials)


class _Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "materialize-iceberg"

    def __init__(self, credentials: FreshAwsCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        return _Renewed(self._credentials)


def _assume(role: AwsRole, region: str) -> Lease[AwsCredentials]:
    client = session(open_aws_credentials(role.own, region), region).client("sts", config=CLIENT_CONFIG)
    external_id = {"ExternalId": role.external_id} if role.external_id else {}
    try:
        answer = client.assume_role(RoleArn=role.arn, RoleSessionName=role.session_name, **external_id)
    except ClientError as error:
        reason = f"{error.response['Error']['Code']}: {error.response['Error'].get('Message', '')}".rstrip(".")
        if not is_refusal(error):
            raise RetryableError(f"AWS STS in {region} is not able to answer now: {reason}.") from error
        raise UserError(
            f"AWS does not let the connector assume the role {role.arn}: {reason}. Check /credentials, whose keys need "
            "the permission sts:AssumeRole, and the role's trust policy, which must name their user and the external "
            "id."
        ) from error
    except BotoCoreError as error:
        raise RetryableError(
            f"AWS STS in {region} cannot be reached: {error}. Check /region, and that the network allows it."
        ) from error
    issued = answer["Credentials"]
    credentials = _credentials(issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"])
    return Lease.until(credentials, issued["Expiration"].timestamp())


def _credentials(access_key_id: str, secret_access_key: str, session_token: str | None) -> AwsCredentials:
    return AwsCredentials(access_key_id, Secret(secret_access_key), Secret(session_token) if session_token else None)


def _find_machine_credentials() -> Lease[AwsCredentials]:
    try:
        found = get_session().get_credentials()
        credentials = found and found.get_frozen_credentials()
    except BotoCoreError as error:
        raise UserError(
            f"the machine's AWS credentials cannot be used: {str(error).rstrip('.')}. Correct them, or set "
            "/credentials."
        ) from error
    if not credentials:
        raise UserError(
            "the config has no AWS credentials, and this machine has none in its environment, profile, container or "
            "instance role. Set /credentials."
        )
    expires_at = time.time() + MACHINE_CREDENTIALS_HOLD if credentials.token else None
    return Lease.until(_credentials(credentials.access_key, credentials.secret_key, credentials.token), expires_at)
