"""Spark's processes inherit what they need, and nothing that signs in."""

import os

import pytest

from connector.spark.jvm.jvm_command import select_inherited

SIGN_INS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "PGPASSWORD",
    "PGPASSFILE",
    "PYICEBERG_CATALOG__LAKE__URI",
)
NEEDED = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "JAVA_TOOL_OPTIONS",
    "HADOOP_HOME",
    "HADOOP_TOKEN_FILE_LOCATION",
    "KRB5CCNAME",
    "https_proxy",
    "SSL_CERT_FILE",
    "AWS_CA_BUNDLE",
    "AWS_EC2_METADATA_DISABLED",
)


def test_what_signs_in_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SIGN_INS, *NEEDED):
        monkeypatch.setenv(name, "set")
    assert os.environ.keys() >= {*SIGN_INS, *NEEDED}
    assert [name for name in (*SIGN_INS, *NEEDED) if name in select_inherited()] == list(NEEDED)
