"""AWS keys that the machine has: wherever AWS's own tools find them, and only where the config allows it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from connector.config.settings import parse
from connector.host.errors import InvalidConfigError, RetryableError, UserError
from connector.storage import aws_sessions
from connector.storage.store_properties import data_file_properties
from protocol.flow import Json
from support.servers.odd_servers import answering
from support.snapshots import check_text

KEYS: Final = {"s3.access-key-id": "of-the-machine", "s3.secret-access-key": "planted"}
TOKEN: Final = "token-of-the-machine"
ENDS: Final = datetime.now(UTC) + timedelta(hours=6)
# What containers and instances are answered by AWS's own services.
ISSUED: Final = json.dumps(
    {
        "Code": "Success",
        "AccessKeyId": KEYS["s3.access-key-id"],
        "SecretAccessKey": KEYS["s3.secret-access-key"],
        "Token": TOKEN,
        "Expiration": ENDS.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
)


@contextmanager
def environment(_: Path) -> Iterator[Mapping[str, str]]:
    yield {"AWS_ACCESS_KEY_ID": "of-the-machine", "AWS_SECRET_ACCESS_KEY": "planted", "AWS_SESSION_TOKEN": TOKEN}


@contextmanager
def profile(directory: Path) -> Iterator[Mapping[str, str]]:
    file = directory / "credentials"
    keys = f"aws_access_key_id = of-the-machine\naws_secret_access_key = planted\naws_session_token = {TOKEN}\n"
    file.write_text(f"[lake]\n{keys}")
    yield {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "lake"}


@contextmanager
def container(_: Path) -> Iterator[Mapping[str, str]]:
    with answering(200, ISSUED) as service:
        yield {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service.uri}/keys"}


@contextmanager
def instance(_: Path) -> Iterator[Mapping[str, str]]:
    with answering(200, ISSUED) as service:
        yield {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.uri}


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "ACCESS_KEY_ID",
        "SECRET_ACCESS_KEY",
        "SESSION_TOKEN",
        "PROFILE",
        "CONTAINER_CREDENTIALS_RELATIVE_URI",
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def config(flags: str) -> Json:
    place = {"bucket": "lake", "region": "us-east-1", "catalog": {"catalog_type": "AWS Glue"}}
    return {"namespace": "ns", "advanced": {"feature_flags": flags}, **place}


@pytest.mark.parametrize("kept_in", [environment, profile, container, instance])
def test_keys_of_the_machine_are_found_wherever_it_keeps_them(
    kept_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_in(tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = data_file_properties(parse(config("use_machine_credentials"), [])[0])
    assert {**KEYS, "s3.session-token": TOKEN}.items() <= found.items()
    assert "s3.session-token-expires-at-ms" in found, "they are fetched anew in a long run"


def test_keys_of_the_machine_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(UserError) as error:
        data_file_properties(parse(config("use_machine_credentials"), [])[0])
    check_text("catalog_errors", "AWS: a machine whose keys cannot be used", str(error.value))


def test_a_program_of_the_machine_that_never_gives_the_keys_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text("[profile lake]\ncredential_process = sleep 10\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.setattr(aws_sessions, "LONGEST_SEARCH", 0.1)
    with pytest.raises(RetryableError) as error:
        data_file_properties(parse(config("use_machine_credentials"), [])[0])
    check_text("catalog_errors", "AWS: a machine whose keys do not come", str(error.value))


@pytest.mark.parametrize("flags", ["", "no_use_machine_credentials"])
def test_without_the_flag_a_config_must_have_keys_of_its_own(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    with pytest.raises(InvalidConfigError, match=r"^/credentials: is required"):
        parse(config(flags), [])
