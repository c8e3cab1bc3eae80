"""The ways to sign in to AWS, as a config names them."""

from dataclasses import dataclass
from typing import TypeAlias

from connector.config import credential_schemas
from connector.config.credential_schemas import DEFAULT_SESSION_NAME
from connector.config.secret import Secret
from connector.config.values import secret
from protocol.flow import Json


@dataclass(frozen=True)
class AwsCredentials:
    """Keys for AWS: a user's own, or those of a role that the runtime has assumed."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None


@dataclass(frozen=True)
class MachineCredentials:
    """What AWS's own tools find on this machine: environment, profile, container, instance."""


@dataclass(frozen=True)
class AwsRole:
    """A role that is assumed with the connector's own keys."""

    arn: str
    own: AwsCredentials | MachineCredentials
    external_id: str = ""
    session_name: str = DEFAULT_SESSION_NAME


Credentials: TypeAlias = AwsCredentials | AwsRole | MachineCredentials


def parse(keys: Json, *, allows_machine_credentials: bool) -> Credentials | None:
    """`keys` are the config's `credentials`, or the config itself with their older form."""
    own = _keys(keys) or (MachineCredentials() if allows_machine_credentials else None)
    if own and keys.get("auth_type") == credential_schemas.AWS_ROLE:
        name = keys.get("role_session_name") or DEFAULT_SESSION_NAME
        return AwsRole(keys["aws_role_arn"], own, keys.get("external_id", ""), name)
    return own


def _keys(keys: Json) -> AwsCredentials | None:
    # An access key has names of its own; a role's and the older form's are the same.
    access_key_id = keys.get("awsAccessKeyId") or keys.get("aws_access_key_id")
    secret_access_key = secret(keys, "awsSecretAccessKey") or secret(keys, "aws_secret_access_key")
    if not access_key_id or not secret_access_key:
        return None
    session_token = secret(keys, "awsSessionToken") or secret(keys, "aws_session_token")
    return AwsCredentials(access_key_id, secret_access_key, session_token)
