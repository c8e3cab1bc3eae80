"""Every property of a config that its schema marks as a secret is one to the whole process."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from connector.config import secret
from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.resource_config import RESOURCE_SCHEMA
from connector.config.secret import Secret
from connector.config.settings import parse_each
from connector.host.errors import InvalidConfigError
from connector.host.redaction import HIDDEN, Redaction, redact
from protocol.flow import Json

# Of the names that schemas have patterns for.
NAMES: Final = {
    "/catalog/properties": ("header.Authorization", "header.X-Api-Key"),
    "/advanced/spark": (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.dfs.adls.oauth2.credential",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.executorEnv.AWS_ACCESS_KEY_ID",
        "spark.ssl.keyStorePassword",
    ),
}
SOUNDS_SECRET: Final = re.compile(r"(?i)secret|password|token|credential|key|proxy|service_account")
NO_SECRETS: Final = {
    "/awsAccessKeyId",
    "/aws_access_key_id",
    "/credentials",  # an object
    "/credentials/awsAccessKeyId",
    "/credentials/aws_access_key_id",
    "/storage/credentials",  # an object
    "/storage/credentials/awsAccessKeyId",
}


def properties(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    for name, member in schema.get("properties", {}).items():
        yield f"{path}/{name}", member
        yield from properties(member, f"{path}/{name}")
    for branch in schema.get("oneOf", ()):
        yield from properties(branch, path)
    for name in NAMES[path] if "patternProperties" in schema else ():
        found = [form for pattern, form in schema["patternProperties"].items() if re.search(pattern, name)]
        yield f"{path}/{name}", found[0] if found else {}


PROPERTIES: Final = sorted(dict(properties(ENDPOINT_SCHEMA)).items())
SECRETS: Final = [path for path, form in PROPERTIES if form.get("secret")]


def nested(path: str, value: Json) -> Json:
    for name in reversed(path.removeprefix("/").split("/")):
        value = {name: value}
    return value


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("shape", ["text", "list", "object"])
def test_a_secret_is_hidden_whatever_else_the_config_lacks(path: str, shape: str) -> None:
    secret = f"planted-as-{shape}-{path.replace('/', '-')}"
    value = {"text": secret, "list": [secret], "object": {"value": secret}}[shape]
    with pytest.raises(InvalidConfigError):
        parse_each(nested(path, value), [])
    assert redact(f"refused: {secret}") == f"refused: {HIDDEN}"


@pytest.mark.parametrize("path", ["/s3_endpoint", "/storage/endpoint", "/catalog/uri", "/catalog/oauth2_server_uri"])
@pytest.mark.parametrize("password", ["planted-in-an-address", "plant@ed-in-an-address", "p@ss"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_password_in_an_address_is_hidden_and_the_address_is_not(path: str, password: str, scheme: str) -> None:
    user = re.sub(r"\W", "-", f"{scheme}{path}{password}")  # no other test has it
    address = f"{scheme}{user}:{password}@lake.example"
    with pytest.raises(InvalidConfigError):
        parse_each(nested(path, address), [])
    assert redact(f"{address} cannot be reached") == f"{scheme}{HIDDEN}@lake.example cannot be reached"


def test_the_password_in_an_address_is_hidden_alone_too() -> None:
    with pytest.raises(InvalidConfigError):
        parse_each({"s3_endpoint": "http://user:planted-in@an-address@lake.example"}, [])
    assert redact("lake.example: planted-in@an-address") == f"lake.example: {HIDDEN}"


def test_what_sounds_like_a_secret_is_marked_as_one() -> None:
    unmarked = {path for path, form in PROPERTIES if SOUNDS_SECRET.search(path.rpartition("/")[2])} - set(SECRETS)
    assert {path for path in unmarked if not path.startswith("/advanced/spark/")} <= NO_SECRETS
    assert set(NAMES["/advanced/spark"]) == {path.rpartition("/")[2] for path in SECRETS if "/spark/" in path}
    assert not [path for path, form in properties(RESOURCE_SCHEMA) if SOUNDS_SECRET.search(path)]


def test_settings_of_spark_that_are_no_secret_can_be_read_in_errors() -> None:
    shown = {"spark.master": "spark://of-the-lake:7077", "spark.hadoop.a.credentials.provider": "org.example.Provider"}
    parse_each({"namespace": "ns", "catalog": {"catalog_type": "Local"}, "advanced": {"spark": shown}}, [])
    assert redact(" ".join(shown.values())) == " ".join(shown.values())


def test_a_secret_that_is_in_use_is_not_forgotten_for_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction = Redaction(most_obtained=2)
    monkeypatch.setattr(secret, "hide_obtained", redaction.hide_obtained)
    used = Secret("planted-token")
    for number in range(5):
        Secret(f"{number}-planted-token")
        used.reveal()
    assert redaction.redact("planted-token") == HIDDEN
