"""Sessions with AWS: credentials of assumed roles and of this machine, and clients that always have valid ones."""

import os
import time
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, InvalidRegionError, ParamValidationError
from botocore.session import Session, get_session

from connector.config.credentials import AwsCredentials, AwsRole, MachineCredentials
from connector.config.secret import Secret
from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.host.refresh import Lease, Refreshed
from connector.host.threads import call_within
from connector.storage.aws_credentials import FreshAwsCredentials, keep_given_credentials
from connector.storage.aws_errors import CREDENTIAL_ERRORS, ENVIRONMENT_ERRORS, is_transient, read_answer

# botocore may retry. If the first UpdateTable was done, the second one looks like a conflict: the catalog tells them
# apart.
CLIENT_CONFIG: Final = Config(
    connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 4, "mode": "standard"}
)
# What clients take from the environment: which certificates are trusted, and which of Amazon's addresses are used.
FROM_ENVIRONMENT: Final = frozenset(
    {"ca_bundle", "ignore_configured_endpoint_urls", "use_dualstack_endpoint", "use_fips_endpoint"}
)
FILES: Final = frozenset({"config_file", "credentials_file"})  # of the machine's AWS tools
MACHINE_CREDENTIALS_HOLD: Final = 600.0  # seconds: botocore refreshes the machine's credentials before less is left
LONGEST_SEARCH: Final = 60.0  # seconds: a program that the machine's profile names may never end


def obtain_credentials(chosen: AwsRole | MachineCredentials, region: str, of: str = "") -> FreshAwsCredentials:
    """Return the credentials that AWS issues. A role is assumed in this region. `of` is the path of the config's object
    that has them, such as /storage; it is empty for the config itself."""
    match chosen:
        case AwsRole():
            return Refreshed("the credentials of the AWS role", lambda: _assume(chosen, region, of))
        case MachineCredentials():
            return Refreshed("the machine's AWS credentials", _find_machine_credentials)


def open_aws_session(credentials: FreshAwsCredentials, region: str) -> boto3.Session:
    """Return a session whose clients sign each request with credentials that are valid then."""
    core = new_core()
    core.register_component("credential_provider", CredentialResolver([_Provider(credentials)]))
    return boto3.Session(botocore_session=core, region_name=region)


def new_core() -> Any:
    """Return a session of botocore that follows the config. By default it follows the profile, the files and most of
    the variables of this machine's AWS tools, and fails if they are wrong."""
    return get_session(
        {
            name: (None, variable if name in FROM_ENVIRONMENT else None, os.devnull if name in FILES else default, read)
            for name, (_, variable, default, read) in Session.SESSION_VARIABLES.items()
        }
    )


def convert_to_botocore(credentials: FreshAwsCredentials) -> ReadOnlyCredentials:
    """Return the credentials in botocore's form."""
    now = credentials.current().value
    token = now.session_token.reveal() if now.session_token else None
    return ReadOnlyCredentials(now.access_key_id, now.secret_access_key.reveal(), token)


class _FreshCredentials(Credentials):  # type: ignore[misc]  # botocore has no types
    """Credentials that botocore asks for with each request."""

    def __init__(self, credentials: FreshAwsCredentials) -> None:
        super().__init__("", "")
        self._credentials = credentials

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return convert_to_botocore(self._credentials)


class _Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "materialize-iceberg"

    def __init__(self, credentials: FreshAwsCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        return _FreshCredentials(self._credentials)


def _assume(role: AwsRole, region: str, of: str) -> Lease[AwsCredentials]:
    own = role.own
    credentials = (
        obtain_credentials(own, region) if isinstance(own, MachineCredentials) else keep_given_credentials(own)
    )
    external_id = {"ExternalId": role.external_id} if role.external_id else {}

    def read_facts(error: Exception) -> dict[str, str]:
        place = f"AWS STS in {region}"
        return {
            "of": of,
            "place": place,
            "region": region,
            "role": role.arn,
            "answer": read_answer(error),
        }

    with translate(STS_ERRORS, read_facts):
        client = open_aws_session(credentials, region).client("sts", config=CLIENT_CONFIG)
        answer = client.assume_role(RoleArn=role.arn, RoleSessionName=role.session_name, **external_id)
    issued = answer["Credentials"]
    assumed = _credentials(issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"])
    return Lease.until(assumed, issued["Expiration"].timestamp())


def _credentials(access_key_id: str, secret_access_key: str, session_token: str | None) -> AwsCredentials:
    return AwsCredentials(access_key_id, Secret(secret_access_key), Secret(session_token) if session_token else None)


def _find_machine_credentials() -> Lease[AwsCredentials]:
    with translate(MACHINE_ERRORS, lambda error: {"answer": read_answer(error)}):
        credentials = call_within(LONGEST_SEARCH, _search_machine)
    if not credentials:
        raise UserError(
            "the config has no AWS credentials, and this machine has none in its environment, profile, container or "
            "instance role. Set /credentials."
        )
    expires_at = time.time() + MACHINE_CREDENTIALS_HOLD if credentials.token else None
    return Lease.until(_credentials(credentials.access_key, credentials.secret_key, credentials.token), expires_at)


def _search_machine() -> ReadOnlyCredentials | None:
    found = get_session().get_credentials()
    return found and found.get_frozen_credentials()


STS_ERRORS: Final[ErrorTable] = (
    Translation(
        is_transient,
        RetryableError,
        "AWS STS in {region} is not able to answer now: {answer}.",
    ),
    *CREDENTIAL_ERRORS,
    Translation(
        is_a(ClientError),
        UserError,
        "AWS does not let the connector assume the role {role}: {answer}. The credentials in {of}/credentials must be "
        "correct and have the permission sts:AssumeRole, and the role's trust policy must name their user and the "
        "external id.",
    ),
    Translation(
        is_a(InvalidRegionError),
        UserError,
        "AWS STS in {region!r} has no address: that is not a region's name. Correct {of}/region.",
    ),
    Translation(
        is_a(ParamValidationError),
        UserError,
        "the role {role} cannot be assumed with these settings: {answer}. Correct them in {of}/credentials.",
    ),
    *ENVIRONMENT_ERRORS,
    Translation(
        is_a(BotoCoreError),
        RetryableError,
        "AWS STS in {region} cannot be reached: {answer}. Check {of}/region, and that the network allows it.",
    ),
)

MACHINE_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(TimeoutError),
        RetryableError,
        f"the machine's AWS credentials were not found within {LONGEST_SEARCH:.0f} s. Check credential_process in the "
        "machine's AWS profile, and that the network allows what else gives the credentials, or set /credentials.",
    ),
    Translation(
        is_a(BotoCoreError, ValueError),  # ValueError: of a variable that must be a number
        UserError,
        "the machine's AWS credentials cannot be used: {answer}. Correct them, or set /credentials.",
    ),
)
