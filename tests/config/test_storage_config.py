"""A config's storage is judged beside its catalog, and read into values."""

from pathlib import Path
from typing import Final

import pytest

from connector.config.credentials import AwsCredentials
from connector.config.secret import Secret
from connector.config.settings import parse
from connector.config.storage import (
    AzureStorage,
    GoogleStorage,
    HdfsStorage,
    LocalFiles,
    S3Storage,
    Storage,
)
from connector.host.errors import InvalidConfigError
from protocol.flow import Json

REST: Final = {"catalog_type": "Iceberg REST Server", "uri": "https://host", "warehouse": "lake"}
SQL: Final = {"catalog_type": "SQL", "uri": "postgresql://host/lake"}
KEY: Final = '{"client_email": "a@b", "private_key": "planted", "token_uri": "https://host/token"}'
S3: Final = {"storage_type": "Amazon S3", "bucket": "b", "region": "eu"}
KEYS: Final = {
    "credentials": {"auth_type": "AWSAccessKey", "awsAccessKeyId": "id", "awsSecretAccessKey": "planted"},
}
GOOGLE: Final = {"storage_type": "Google Cloud Storage", "bucket": "b"}
AZURE: Final = {"storage_type": "Azure", "account": "lake", "container": "c-1"}
APPLICATION: Final = {"tenant_id": "t", "client_id": "c", "client_secret": "planted"}
MACHINE_CREDENTIALS: Final = {"advanced": {"feature_flags": "use_machine_credentials"}}


def storage(given: Json, **config: Json) -> Storage | None:
    return parse({"namespace": "ns", "catalog": SQL, "storage": given, **config}, [])[0].storage


@pytest.mark.parametrize(
    ("given", "config", "parsed"),
    [
        (
            {**GOOGLE, "service_account_json": KEY, "prefix": "/lake/", "endpoint": "http://host/"},
            {},
            GoogleStorage("b", "lake", Secret(KEY), endpoint="http://host"),
        ),
        (GOOGLE, MACHINE_CREDENTIALS, GoogleStorage("b")),
        ({**GOOGLE, "service_account_json": KEY}, MACHINE_CREDENTIALS, GoogleStorage("b", service_account=Secret(KEY))),
        (GOOGLE, {"catalog": REST}, GoogleStorage("b")),
        (
            {**S3, "prefix": "/lake/", "endpoint": "http://host/"},
            KEYS,
            S3Storage("b", "eu", "lake", endpoint="http://host/"),
        ),
        ({**S3, **KEYS}, {}, S3Storage("b", "eu", credentials=AwsCredentials("id", Secret("planted")))),
        (
            {**S3, **KEYS},
            {"catalog": {"catalog_type": "AWS Glue"}, "region": "us", **KEYS},
            S3Storage("b", "eu", credentials=AwsCredentials("id", Secret("planted"))),
        ),
        (S3, {"catalog": REST}, S3Storage("b", "eu")),
        (S3, MACHINE_CREDENTIALS, S3Storage("b", "eu")),
        (
            {**AZURE, "account_key": "cGxhbnRlZA==", "prefix": "lake/", "endpoint": "http://host/"},
            {},
            AzureStorage("lake", "c-1", "lake", Secret("cGxhbnRlZA=="), endpoint="http://host"),
        ),
        ({**AZURE, "sas_token": "planted"}, {}, AzureStorage("lake", "c-1", sas_token=Secret("planted"))),
        (
            {**AZURE, **APPLICATION},
            {},
            AzureStorage("lake", "c-1", tenant_id="t", client_id="c", client_secret=Secret("planted")),
        ),
        (AZURE, {"catalog": REST}, AzureStorage("lake", "c-1")),
        ({"storage_type": "HDFS", "uri": "hdfs://node:8020/lake/"}, {}, HdfsStorage("hdfs://node:8020/lake")),
        ({"storage_type": "Local Files", "directory": "file:///lake"}, {}, LocalFiles(Path("/lake"))),
    ],
)
def test_a_storage_is_read_into_a_value(given: Json, config: Json, parsed: Storage) -> None:
    assert storage(given, **config) == parsed
    assert not [secret for secret in ("planted", "cGxhbnRlZA==") if secret in repr(parsed)]


@pytest.mark.parametrize(
    ("name", "others"),
    [("account_key", {}), ("sas_token", {}), ("client_secret", {"tenant_id": "t", "client_id": "c"})],
)
def test_white_space_around_a_copied_secret_of_azure_does_not_count(name: str, others: Json) -> None:
    assert storage({**AZURE, **others, name: " cGxhbnRlZA==\r\n"}) == storage({**AZURE, **others, name: "cGxhbnRlZA=="})


OF_S3: Final = "is used only without /storage: remove it, or remove /storage"


@pytest.mark.parametrize(
    ("given", "config", "problems"),
    [
        (
            {**GOOGLE, "service_account_json": KEY},
            {"catalog": {"catalog_type": "Local"}},
            ["/storage: must be removed: Local keeps its tables in its warehouse directory"],
        ),
        (
            {**GOOGLE, "service_account_json": KEY},
            {"bucket": "b", "prefix": "p", "s3_endpoint": "http://host"},
            [f"/bucket: {OF_S3}", f"/prefix: {OF_S3}", f"/s3_endpoint: {OF_S3}"],
        ),
        (
            {"storage_type": "Nowhere"},
            {},
            [
                "/storage/storage_type: must be one of 'Amazon S3', 'Google Cloud Storage', 'Azure', 'HDFS', "
                "'Local Files'"
            ],
        ),
        (
            {"storage_type": "HDFS", "uri": "/lake"},
            {},
            ["/storage/uri: must be a directory of HDFS, such as hdfs://namenode:8020/lake"],
        ),
        (
            {"storage_type": "Local Files", "directory": "s3://b/lake"},
            {},
            ["/storage/directory: must be a directory of this machine: a path, or file:// and an absolute path"],
        ),
        (
            AZURE,
            {},
            [
                "/storage: needs a way to sign in: set account_key, sas_token, or client_secret with tenant_id and "
                "client_id, or the feature flag use_machine_credentials"
            ],
        ),
        (
            {**AZURE, "account_key": "cGxhbnRlZA==", **APPLICATION},
            {},
            ["/storage: has more than one way to sign in: set only one of account_key, sas_token and client_secret"],
        ),
        (
            {**AZURE, "account_key": "planted!"},
            {},
            ["/storage/account_key: must be an access key of the storage account, as Azure's portal shows it"],
        ),
        (
            {**AZURE, "client_secret": "planted"},
            {},
            [
                "/storage/client_id: is required if client_secret is set",
                "/storage/tenant_id: is required if client_secret is set",
            ],
        ),
        (
            {**AZURE, "account": "My-Account", "container": "a--b", "account_key": "cGxhbnRlZA=="},
            {},
            [
                "/storage/account: must be the name of a storage account: 3 to 24 lower-case letters and digits",
                "/storage/container: must be the name of a container: 3 to 63 lower-case letters, digits and single "
                "hyphens",
            ],
        ),
        *(
            (
                {**AZURE, "container": name, "account_key": "cGxhbnRlZA=="},
                {},
                [
                    "/storage/container: must be the name of a container: 3 to 63 lower-case letters, digits and "
                    "single hyphens"
                ],
            )
            for name in ("ab", "a" * 64, "a-" * 32 + "b", "-abc", "abc-")
        ),
        (
            GOOGLE,
            {},
            ["/storage/service_account_json: is required unless the feature flag use_machine_credentials is on"],
        ),
        (
            {**GOOGLE, "service_account_json": '{"private_key": "planted"}'},
            {},
            [
                "/storage/service_account_json: must be the JSON key of a service account, as Google's console writes "
                "it, with client_email, private_key, token_uri"
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_storage_is_said_by_its_path(given: Json, config: Json, problems: list[str]) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        storage(given, **config)
    assert "planted" not in str(raised.value)
    assert sorted(str(raised.value).splitlines()) == problems
