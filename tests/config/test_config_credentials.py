"""Which credentials a config has, of all the ways to give them."""

import pytest

from config.configs import ACCESS_KEY, GLUE, IAM, REST, ROLE, complaints, without
from connector.config.catalog import RestCatalog, SqlCatalog
from connector.config.credentials import AwsCredentials, AwsIam, AwsRole, MachineCredentials
from connector.config.secret import Secret
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from protocol.flow import Json

MACHINE_CREDENTIALS: Json = {"advanced": {"feature_flags": "use_machine_credentials"}}


def test_the_older_keys_are_used_where_credentials_are_absent() -> None:
    older = {**without(GLUE, "credentials"), "aws_access_key_id": "k", "aws_secret_access_key": "s"}
    assert parse(older, [])[0].credentials == AwsCredentials("k", Secret("s"))


def test_the_keys_of_an_assumed_role_are_used() -> None:
    credentials = parse(IAM, [])[0].credentials
    assert isinstance(credentials, AwsIam)
    assert credentials.keys == AwsCredentials("id", Secret("secret"), Secret("token"))


def test_a_role_is_assumed_with_keys_of_its_own_config() -> None:
    role = parse(ROLE, [])[0].credentials
    assert role == AwsRole("arn:aws:iam::1:role/flow", "ours", "materialize-iceberg", "id", Secret("secret"))
    assert isinstance(role, AwsRole)
    assert role.own == AwsCredentials("id", Secret("secret"))


def test_a_token_may_have_white_space_around_it_but_none_within() -> None:
    """The field has several lines, so a copied token often ends with a line break. No header may have one."""

    def token_of(text: str) -> Secret | None:
        catalog = {"catalog_type": "Iceberg REST Server", "uri": "https://host", "warehouse": "lake", "token": text}
        endpoint, _ = parse({"namespace": "shop", "catalog": catalog}, [])
        assert isinstance(endpoint.catalog, RestCatalog)
        return endpoint.catalog.token

    assert token_of("eyJ.a-b_c/+=\r\n") == token_of(" eyJ.a-b_c/+=") == Secret("eyJ.a-b_c/+=")
    for text in ("a\nb", "a b", " ", "a\0"):
        with pytest.raises(InvalidConfigError, match="/catalog/token: must be one line"):
            token_of(text)


def test_temporary_keys_have_a_session_token() -> None:
    temporary = {**ACCESS_KEY, "awsAccessKeyId": "ASIA1", "awsSessionToken": "token"}
    credentials = AwsCredentials("ASIA1", Secret("secret"), Secret("token"))
    assert parse({**GLUE, "credentials": temporary}, [])[0].credentials == credentials


def test_the_machine_s_credentials_are_used_only_where_a_flag_allows_it_and_nothing_is_given() -> None:
    without_keys = without(GLUE, "credentials")
    assert parse({**without_keys, **MACHINE_CREDENTIALS}, [])[0].credentials == MachineCredentials()
    assert parse({**GLUE, **MACHINE_CREDENTIALS}, [])[0].credentials == AwsCredentials("id", Secret("secret"))
    role = {"auth_type": "AWSRole", "aws_role_arn": "arn:aws:iam::1:role/flow", "role_session_name": "lake"}
    parsed = parse({**without_keys, "credentials": role, **MACHINE_CREDENTIALS}, [])[0].credentials
    assert parsed == AwsRole(role["aws_role_arn"], session_name="lake")
    assert isinstance(parsed, AwsRole)
    assert parsed.own == MachineCredentials()
    assert complaints({**without_keys, "credentials": role}) == [
        f"/credentials/{name}: is required unless the feature flag use_machine_credentials is on"
        for name in ("awsAccessKeyId", "awsSecretAccessKey")
    ]


def test_the_machine_s_credentials_replace_the_keys_that_flow_s_runtime_adds_where_the_flag_allows_it() -> None:
    role = {"auth_type": "AWSIAM", "aws_region": "us-east-1", "aws_role_arn": "arn:aws:iam::1:role/flow"}
    by_hand = {**GLUE, "credentials": role}
    assert parse({**by_hand, **MACHINE_CREDENTIALS}, [])[0].credentials == MachineCredentials()
    assert parse({**IAM, **MACHINE_CREDENTIALS}, [])[0].credentials == parse(IAM, [])[0].credentials
    half = {**IAM, "credentials": without(IAM["credentials"], "aws_access_key_id"), **MACHINE_CREDENTIALS}
    for refused in by_hand, half:
        [complaint] = complaints(refused)
        assert complaint.startswith("/credentials: has no credentials: ")


@pytest.mark.parametrize("uri", ["postgresql://user@host:5432/lake", "postgresql://host/lake?sslmode=require"])
def test_an_sql_catalog_has_its_password_beside_its_address(uri: str) -> None:
    catalog = {"catalog_type": "SQL", "uri": uri, "password": "secret"}
    assert parse({**GLUE, "catalog": catalog}, [])[0].catalog == SqlCatalog(uri, Secret("secret"), "iceberg")


def test_white_space_around_a_copied_secret_does_not_count() -> None:
    copied = {**ACCESS_KEY, "awsSecretAccessKey": "secret\n"}
    assert parse({**GLUE, "credentials": copied}, []) == parse(GLUE, [])
    endpoint, _ = parse({**REST, "catalog": {**REST["catalog"], "credential": " client:pass\n"}}, [])
    assert (
        endpoint.catalog == parse({**REST, "catalog": {**REST["catalog"], "credential": "client:pass"}}, [])[0].catalog
    )


def test_a_role_that_the_machine_assumes_has_no_half_of_a_key() -> None:
    names = ("awsAccessKeyId", "awsSecretAccessKey")
    for name, other in (names, names[::-1]):
        half = {**GLUE, "credentials": without(ROLE["credentials"], name), **MACHINE_CREDENTIALS}
        assert complaints(half) == [f"/credentials/{name}: is required if {other} is set"]


def test_a_catalog_of_google_does_not_get_the_machine_s_credentials_for_aws() -> None:
    rest = {**without(REST, "credentials"), **MACHINE_CREDENTIALS}
    google = {**REST["catalog"], "properties": {"rest.auth.type": "google"}}
    assert parse({**rest, "catalog": google}, [])[0].credentials is None
    assert parse(rest, [])[0].credentials == MachineCredentials()
