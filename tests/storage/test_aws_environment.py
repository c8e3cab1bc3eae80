"""The config says where AWS is and what signs in, whatever the AWS tools of this machine are told."""

from pathlib import Path
from typing import Any, Final

import pytest

from connector.checks.s3_probe import open_bucket
from connector.config.credentials import AwsCredentials
from connector.config.secret import Secret
from connector.config.settings import parse
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.storage.aws_credentials import keep_given_credentials
from connector.storage.aws_sessions import open_aws_session
from connector.storage.s3_objects import find_url
from connector.storage.store_properties import data_file_properties
from support.snapshots import check_text

KEYS: Final = AwsCredentials("AKIDCONFIG", Secret("planted-in-config"), None)
REGION: Final = "eu-west-1"
# A config file of AWS's tools: cut short, or for another store.
FILES: Final = {"cut": "[default\n", "elsewhere": "[default]\nendpoint_url = http://elsewhere:1\nregion = us-west-2\n"}
WRONG: Final = (
    "AWS_ACCOUNT_ID_ENDPOINT_MODE",
    "AWS_CSM_PORT",
    "AWS_DATA_PATH",
    "AWS_DEFAULTS_MODE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_DISCOVERY_ENABLED",
    "AWS_MAX_ATTEMPTS",
    "AWS_METADATA_SERVICE_TIMEOUT",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES",
    "AWS_RETRY_MODE",
    "AWS_SESSION_TOKEN",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_USE_FIPS_ENDPOINT",
)


def config(**settings: Any) -> Any:
    keys = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "AKIDCONFIG", "awsSecretAccessKey": "planted-in-config"}
    place = {"bucket": "lake", "region": REGION, "catalog": {"catalog_type": "AWS Glue"}, "credentials": keys}
    return parse({"namespace": "ns", **place, **settings}, [])[0]


def check_clients() -> None:
    session = open_aws_session(keep_given_credentials(KEYS), REGION)
    for service in ("glue", "sts", "s3"):
        client = session.client(service)
        assert client.meta.endpoint_url == f"https://{service}.{REGION}.amazonaws.com"
        assert client._request_signer._credentials.get_frozen_credentials().access_key == "AKIDCONFIG"
    with open_bucket("lake", "", data_file_properties(config())) as bucket:
        assert bucket.client.meta.endpoint_url == f"https://s3.{REGION}.amazonaws.com"
        found = bucket.client._request_signer._credentials.get_frozen_credentials()
        assert (found.access_key, found.token) == ("AKIDCONFIG", None)


@pytest.mark.parametrize("variable", WRONG)
def test_a_wrong_variable_of_aws_s_tools_has_no_effect(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "nowhere")
    check_clients()


@pytest.mark.parametrize("content", FILES.values(), ids=list(FILES))
@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
def test_a_file_of_aws_s_tools_has_no_effect(
    variable: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setenv(variable, str(file))
    check_clients()


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_the_address_of_s3_in_the_environment_is_that_of_all_requests(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that PyArrow does not send, and of those of other machines."""
    monkeypatch.setenv(variable, "http://store:9000")
    properties = data_file_properties(config())
    assert properties["s3.endpoint"] == "http://store:9000"
    assert find_url("s3://lake/file", properties) == "http://store:9000/lake/file"
    with open_bucket("lake", "", properties) as bucket:
        assert bucket.client.meta.endpoint_url == "http://store:9000"


def test_the_address_of_s3_in_the_config_is_used_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://elsewhere:9000")
    assert data_file_properties(config(s3_endpoint="http://store:9000"))["s3.endpoint"] == "http://store:9000"


def test_addresses_in_the_environment_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:9000")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert "s3.endpoint" not in data_file_properties(config())
    check_clients()


ROLE: Final = {
    "auth_type": "AWSRole",
    "aws_role_arn": "arn:aws:iam::123456789012:role/flow",
    "awsAccessKeyId": "AKIDCONFIG",
    "awsSecretAccessKey": "planted-in-config",
}


@pytest.mark.parametrize(
    ("variable", "value", "kind", "name"),
    [
        ("AWS_ENDPOINT_URL_{}", ":::", UserError, "a malformed address in the environment"),
        ("HTTPS_PROXY", "http://127.0.0.1:1", RetryableError, "a proxy that is not there"),
    ],
)
@pytest.mark.parametrize(("service", "credentials"), [("Glue", {}), ("STS", {"credentials": ROLE})])
def test_a_variable_that_keeps_amazon_from_being_reached_is_named(
    service: str,
    credentials: Any,
    variable: str,
    value: str,
    kind: type[ConnectorError],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for each in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable.format(service.upper()), value)
    endpoint = config(**credentials)
    with pytest.raises(kind) as error, translate_errors(endpoint):
        open_catalog(endpoint).list_namespaces()
    check_text("catalog_errors", f"AWS {service}: {name}", str(error.value))


def test_a_variable_that_keeps_the_machine_s_credentials_from_being_found_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "soon")
    with pytest.raises(UserError) as error:
        data_file_properties(config(credentials=None, advanced={"feature_flags": "use_machine_credentials"}))
    check_text("catalog_errors", "AWS: a variable of the machine's credentials that is wrong", str(error.value))
