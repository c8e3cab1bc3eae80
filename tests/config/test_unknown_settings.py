"""A setting that is unknown at its place is told which one was meant, or where it belongs, if a name is near enough."""

from typing import Final

import pytest

from config.configs import GLUE, LOCAL, REST, complaints
from protocol.flow import Json

SHORT: Final = {"namespace": "shop"}  # its catalog is AWS Glue
LIST: Final = "is not a known property; the known properties are "


def text_about(config: Json, path: str) -> str:
    [text] = [line.removeprefix(f"{path}: ") for line in complaints(config) if line.startswith(f"{path}: ")]
    return text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, LIST) for name in ("compression", "profile", "location", "schema", "notifications", "", "x")),
        ("bucket_name", "is not a known property; did you mean bucket?"),
        ("aws_region", "is not a known property; did you mean region?"),
        ("secret_key", "is not a known property; did you mean aws_secret_access_key?"),
        ("deltaUpdates", "is not a known property here; set /delta_updates in the config of a binding"),
        ("featureFlags", "is not a known property here; set /advanced/feature_flags in the endpoint config"),
        ("timezone", "is not a known property here; set /syncSchedule/timezone in the endpoint config"),
        ("listen", "is not a known property here; set /advanced/metrics/listen in the endpoint config"),
        ("spark.master", "is not a known property here; set /advanced/spark/spark.master in the endpoint config"),
        ("container", "is not a known property here; set /storage/container in the endpoint config"),
        ("credential", "is not a known property here; set /catalog/credential in the endpoint config"),
        (
            "role_arn",
            "is not a known property here; did you mean /credentials/aws_role_arn in the endpoint config?",
        ),
    ],
)
def test_a_name_at_the_top(name: str, text: str) -> None:
    assert text_about({**SHORT, name: "planted"}, f"/{name}").startswith(text)


def with_credentials(**others: Json) -> Json:
    return {**GLUE, "credentials": {**GLUE["credentials"], **others}}


def with_catalog(**others: Json) -> Json:
    return {**REST, "catalog": {**REST["catalog"], **others}}


@pytest.mark.parametrize(
    ("config", "path", "text"),
    [
        ({**LOCAL, "advanced": {"compression": "zstd"}}, "/advanced/compression", LIST),
        (
            {**LOCAL, "advanced": {"spark.master": "local[2]"}},
            "/advanced/spark.master",
            "is not a known property here; set /advanced/spark/spark.master in the endpoint config",
        ),
        (
            with_credentials(aws_region="eu-west-1"),
            "/credentials/aws_region",
            "is not a known property here; did you mean /region in the endpoint config?",
        ),
        (with_catalog(url="https://host"), "/catalog/url", LIST),
        (with_catalog(type="rest"), "/catalog/type", LIST),
        (with_catalog(credentials="id:planted"), "/catalog/credentials", "is not a known property; did you mean "),
        (
            with_catalog(credentials={}, storage={"storage_type": "Local Files"}),
            "/catalog/storage",
            "is not a known property here; set /storage in the endpoint config",
        ),
        (
            with_catalog(**{"header.X-Key": "planted"}),
            "/catalog/header.X-Key",
            "is not a known property here; set /catalog/properties/header.X-Key in the endpoint config",
        ),
        (
            with_catalog(sigv4_enabled=True),
            "/catalog/sigv4_enabled",
            "is not a known property here; did you mean /catalog/properties/rest.sigv4-enabled in the endpoint config?",
        ),
        (
            {**SHORT, "storage": {"storage_type": "Amazon S3", "s3_endpoint": "https://host"}},
            "/storage/s3_endpoint",
            "is not a known property; did you mean endpoint?",
        ),
    ],
)
def test_a_name_within_an_object(config: Json, path: str, text: str) -> None:
    assert text_about(config, path).startswith(text)


@pytest.mark.parametrize(
    ("catalog", "name", "text"),
    [
        ({"catalog_type": "AWS Glue"}, "warehouse", "is not a property that PyIceberg reads here; "),
        ({"catalog_type": "AWS Glue"}, "glue.id", "cannot be set here: use /catalog/glue_id"),
        ({"catalog_type": "Hive Metastore", "uri": "thrift://host"}, "uri", "cannot be set here: use /catalog/uri"),
        ({"catalog_type": "Hive Metastore", "uri": "thrift://host"}, "token", "is not a property that PyIceberg reads"),
    ],
)
def test_only_a_setting_that_the_catalog_has_is_named_instead_of_a_property(
    catalog: Json, name: str, text: str
) -> None:
    config = {**GLUE, "catalog": {**catalog, "properties": {name: "planted"}}}
    assert text_about(config, f"/catalog/properties/{name}").startswith(text)


def test_a_binding_is_told_of_settings_of_the_endpoint() -> None:
    config = {"table": "t", "bucket": "b", "max_waiting_bytes": 1, "url": "https://host", "name": "t"}
    assert [line.partition("; the known")[0] for line in complaints(LOCAL, config)] == [
        "bindings[0] /bucket: is not a known property here; set /bucket in the endpoint config",
        "bindings[0] /max_waiting_bytes: is not a known property here; set /advanced/max_waiting_bytes in the endpoint "
        "config",
        "bindings[0] /url: is not a known property here; set /notify/url in the endpoint config",
        "bindings[0] /name: is not a known property",
    ]
