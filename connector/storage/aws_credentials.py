"""AWS keys that are always valid: the config's own, those of an assumed role, or the machine's."""

import time
from typing import Final, TypeAlias

import boto3
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session
from pyiceberg.io import S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_SESSION_TOKEN

from connector.config.credentials import AwsCredentials, AwsRole, MachineCredentials
from connector.config.secret import Secret
from connector.host.errors import RetryableError, UserError
from connector.host.refresh import Lease, Renewed
from connector.storage.aws_errors import is_refusal
from connector.storage.file_access import S3_EXPIRES_AT_MS

AwsKeys: TypeAlias = Renewed[AwsCredentials]

# botocore may retry: a repeated UpdateTable may find its own first try and look like a conflict, but the fence tells.
CLIENT_CONFIG: Final = Config(
    connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 4, "mode": "standard"}
)
MACHINE_KEYS_HOLD: Final = 600.0  # seconds: botocore renews the machine's keys before less than this is left


def aws_keys(credentials: AwsCredentials | AwsRole | MachineCredentials, region: str) -> AwsKeys:
    """`region` is where a role is assumed."""
    match credentials:
        case AwsCredentials():
            return Renewed("the AWS keys", lambda: Lease.until(credentials, None))
        case AwsRole():
            return Renewed("the keys of the AWS role", lambda: _assume(credentials, region))
        case MachineCredentials():
            return Renewed("the machine's AWS keys", _machine_keys)


def session(keys: AwsKeys, region: str) -> boto3.Session:
    """A session whose clients sign with keys that are valid at that moment."""
    core = get_session()
    core.register_component("credential_provider", CredentialResolver([_Provider(keys)]))
    return boto3.Session(botocore_session=core, region_name=region)


def file_keys(keys: AwsKeys) -> dict[str, str]:
    """The keys as FileIO properties."""
    lease = keys.current()
    found = {
        S3_ACCESS_KEY_ID: lease.value.access_key_id,
        S3_SECRET_ACCESS_KEY: lease.value.secret_access_key.reveal(),
    }
    if lease.value.session_token:
        found[S3_SESSION_TOKEN] = lease.value.session_token.reveal()
    if lease.expires_at is not None:
        found[S3_EXPIRES_AT_MS] = str(int(lease.expires_at * 1000))
    return found


def frozen(keys: AwsKeys) -> ReadOnlyCredentials:
    """The keys in botocore's form."""
    now = keys.current().value
    token = now.session_token.reveal() if now.session_token else None
    return ReadOnlyCredentials(now.access_key_id, now.secret_access_key.reveal(), token)


class _Renewed(Credentials):  # type: ignore[misc]  # botocore has no types
    """botocore asks for these with every request."""

    def __init__(self, keys: AwsKeys) -> None:
        super().__init__("", "")
        self._keys = keys

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return frozen(self._keys)


class _Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "materialize-iceberg"

    def __init__(self, keys: AwsKeys) -> None:
        super().__init__()
        self._keys = keys

    def load(self) -> Credentials:
        return _Renewed(self._keys)


def _assume(role: AwsRole, region: str) -> Lease[AwsCredentials]:
    client = session(aws_keys(role.own, region), region).client("sts", config=CLIENT_CONFIG)
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
    keys = _credentials(issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"])
    return Lease.until(keys, issued["Expiration"].timestamp())


def _credentials(access_key_id: str, secret_access_key: str, session_token: str | None) -> AwsCredentials:
    return AwsCredentials(access_key_id, Secret(secret_access_key), Secret(session_token) if session_token else None)


def _machine_keys() -> Lease[AwsCredentials]:
    try:
        found = get_session().get_credentials()
        keys = found and found.get_frozen_credentials()
    except BotoCoreError as error:
        raise UserError(
            f"the machine's AWS credentials cannot be used: {str(error).rstrip('.')}. Correct them, or set "
            "/credentials."
        ) from error
    if not keys:
        raise UserError(
            "the config has no AWS credentials, and this machine has none in its environment, profile, container or "
            "instance role. Set /credentials."
        )
    expires_at = time.time() + MACHINE_KEYS_HOLD if keys.token else None
    return Lease.until(_credentials(keys.access_key, keys.secret_key, keys.token), expires_at)
