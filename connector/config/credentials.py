"""The ways to sign in to AWS that a config can choose."""

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from connector.config.definition import Definition, Setting
from connector.config.secret import Secret
from connector.config.values import ROLE_ARN, parse_secret_access_key, parse_token, parse_word

AUTH_TYPE: Final = "auth_type"
AWS_ACCESS_KEY: Final = "AWSAccessKey"
AWS_IAM: Final = "AWSIAM"
AWS_ROLE: Final = "AWSRole"

TEMPORARY: Final = "ASIA"  # the IDs of temporary keys begin with it

_MAY_BE_NULL: Final = {"type": ["string", "null"]}


class AwsCredentials(Definition, frozen=True, tag_field=AUTH_TYPE, tag=AWS_ACCESS_KEY):
    """An access key for AWS."""

    title: ClassVar[str] = "AWS Access Key"

    access_key_id: Annotated[
        str,
        Setting("AWS Access Key ID", "The ID of an access key.", min_length=1, parse=parse_word),
    ] = msgspec.field(name="awsAccessKeyId")
    secret_access_key: Annotated[
        Secret,
        Setting("AWS Secret Access Key", "The secret of the access key.", min_length=1, parse=parse_secret_access_key),
    ] = msgspec.field(name="awsSecretAccessKey")
    session_token: Annotated[
        Secret | None,
        Setting(
            "AWS Session Token",
            "The session token of a temporary key, whose ID begins with ASIA. The task fails when the key expires.",
            parse=parse_token,
        ),
    ] = msgspec.field(name="awsSessionToken", default=None)


class MachineCredentials(msgspec.Struct, frozen=True):
    """Credentials of this machine, which AWS's tools find: of the environment, a profile, a container, an instance."""


class AwsIam(Definition, frozen=True, tag_field=AUTH_TYPE, tag=AWS_IAM):
    """A role that the runtime assumes before it sends the config. It adds the keys of the role."""

    title: ClassVar[str] = "AWS IAM"

    role_arn: Annotated[
        str,
        Setting(
            "AWS Role ARN", "The role that Flow assumes. It needs access to the bucket and the catalog.", min_length=1
        ),
    ] = msgspec.field(name="aws_role_arn")
    region: Annotated[str, Setting("AWS Region", "The AWS region where Flow assumes the role.", min_length=1)] = (
        msgspec.field(name="aws_region")
    )
    access_key_id: Annotated[
        str, Setting("AWS Access Key ID", "Of the role. The runtime sets it.", is_hidden=True, parse=parse_word)
    ] = msgspec.field(name="aws_access_key_id", default="")
    secret_access_key: Annotated[
        Secret | None, Setting("AWS Secret Access Key", "Of the role. The runtime sets it.", is_hidden=True)
    ] = msgspec.field(name="aws_secret_access_key", default=None)
    session_token: Annotated[
        Secret | None,
        Setting("AWS Session Token", "Of the role. The runtime sets it.", is_hidden=True, parse=parse_token),
    ] = msgspec.field(name="aws_session_token", default=None)

    @property
    def keys(self) -> AwsCredentials:
        """The keys of the role, which the runtime has added to the config."""
        assert self.secret_access_key, "a config without it is refused"
        return AwsCredentials(self.access_key_id, self.secret_access_key, self.session_token)


class AwsRole(Definition, frozen=True, tag_field=AUTH_TYPE, tag=AWS_ROLE):
    """A role that the connector assumes, with an access key or with the machine's credentials."""

    title: ClassVar[str] = "AWS Role"

    arn: Annotated[
        str,
        Setting("AWS Role ARN", "The role that the connector assumes.", pattern=ROLE_ARN),
    ] = msgspec.field(name="aws_role_arn")
    external_id: Annotated[
        str, Setting("External ID", "The external ID that the trust policy of the role requires.")
    ] = ""
    session_name: Annotated[
        str, Setting("Role Session Name", "The session name that AWS's logs show for actions of the role.")
    ] = msgspec.field(name="role_session_name", default="materialize-iceberg")
    access_key_id: Annotated[
        str,
        Setting(
            "AWS Access Key ID",
            "The ID of an access key that can assume the role. Without one, the machine's credentials assume it, which "
            "the feature flag use_machine_credentials must allow.",
            parse=parse_word,
        ),
    ] = msgspec.field(name="awsAccessKeyId", default="")
    secret_access_key: Annotated[
        Secret | None,
        Setting(
            "AWS Secret Access Key",
            "The secret of the access key. Required with an ID.",
            parse=parse_secret_access_key,
        ),
    ] = msgspec.field(name="awsSecretAccessKey", default=None)

    @property
    def own(self) -> AwsCredentials | MachineCredentials:
        """The credentials that assume the role."""
        if self.secret_access_key is None:
            return MachineCredentials()
        return AwsCredentials(self.access_key_id, self.secret_access_key)


Credentials: TypeAlias = AwsCredentials | AwsIam | AwsRole | MachineCredentials


class OlderKeys(Definition, frozen=True):
    """The older form of credentials: an access key beside the other properties of the endpoint config."""

    access_key_id: Annotated[
        str,
        Setting(
            "AWS Access Key ID",
            "The older form of `credentials`. It is used only without `credentials`.",
            is_hidden=True,
            keywords=_MAY_BE_NULL,
            parse=parse_word,
        ),
    ] = msgspec.field(name="aws_access_key_id", default="")
    secret_access_key: Annotated[
        Secret | None,
        Setting(
            "AWS Secret Access Key",
            "The older form of `credentials`. It is used only without `credentials`.",
            is_hidden=True,
            keywords=_MAY_BE_NULL,
            parse=parse_secret_access_key,
        ),
    ] = msgspec.field(name="aws_secret_access_key", default=None)

    @property
    def credentials(self) -> AwsCredentials | None:
        """The access key; None unless both of its parts are set."""
        if self.access_key_id and self.secret_access_key:
            return AwsCredentials(self.access_key_id, self.secret_access_key)
        return None
