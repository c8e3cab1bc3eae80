"""No error, text or serializer repeats a secret of a config."""

from collections.abc import Iterator

import msgspec
import orjson
import pytest

from config.configs import EVERYTHING, GLUE, IAM, REST
from connector.config.credentials import AwsCredentials
from connector.config.secret import Secret
from connector.config.settings import parse
from connector.config.values import FEATURE_FLAGS
from connector.host.errors import InvalidConfigError
from protocol.flow import Json


def planted(value: Json, secret: str) -> Iterator[Json]:
    """The config with the secret in every place, in shapes that fit and in shapes that do not."""
    yield from (secret, [secret], {"name": secret}, {"name": {"deeper": secret}})
    if isinstance(value, dict):
        for name in value:
            for member in planted(value[name], secret):
                yield {**value, name: member}


def test_a_secret_in_any_place_is_never_repeated() -> None:
    secret = "planted.#/?secret"
    errors = [error for base in (EVERYTHING, IAM) for endpoint in planted(base, secret) if (error := refusal(endpoint))]
    # A feature flag is no secret: the error names the one that it does not know.
    assert [error for error in errors if secret in error] == [
        f"/advanced/feature_flags: {secret!r} is not a feature flag: correct or remove it; the feature flags are "
        f"{', '.join(FEATURE_FLAGS)}"
    ]
    assert len(errors) > 100


def refusal(endpoint: Json) -> str:
    try:
        parse(endpoint, [])
    except InvalidConfigError as error:
        return str(error)
    return ""


def test_a_config_shows_no_secret() -> None:
    endpoint, _ = parse({**EVERYTHING, "advanced": {"spark": {"spark.password": "in the settings"}}}, [])
    shown = f"{endpoint} {endpoint!r}"
    assert "AwsCredentials(access_key_id='id', secret_access_key=***" in shown
    assert not [
        secret for secret in ("'secret'", "client:pass", "bearer", "in the settings", "in a header") if secret in shown
    ]


@pytest.mark.parametrize(
    "catalog",
    [REST["catalog"], {"catalog_type": "AWS Glue"}, {"catalog_type": "Hive Metastore", "uri": "thrift://metastore"}],
)
def test_a_catalog_shows_no_password_of_a_proxy(catalog: Json) -> None:
    proxy = {"s3.proxy-uri": "http://user:planted@proxy"}
    endpoint, _ = parse({**GLUE, "catalog": {**catalog, "properties": proxy}}, [])
    assert "planted" not in repr(endpoint)


def test_no_serializer_writes_a_secret() -> None:
    credentials = AwsCredentials("id", Secret("hidden"))
    assert credentials.secret_access_key.reveal() == "hidden"
    for write in (orjson.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(credentials)
