"""The catalog properties that a config may have are those that PyIceberg reads, and of others it says what they are."""

from inspect import getsource
from types import ModuleType

import pytest
from pyiceberg import catalog, io
from pyiceberg.catalog import glue, hive, rest
from pyiceberg.io import pyarrow

from connector.config.catalog_properties import (
    AUTH_TYPE,
    FILE_PROPERTIES,
    GLUE_PROPERTIES,
    HIVE_PROPERTIES,
    REST_PROPERTIES,
    SETTINGS,
)
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from support.repository import REPOSITORY

DOCS = (REPOSITORY / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize(
    ("names", "readers"),
    [(REST_PROPERTIES, rest), (GLUE_PROPERTIES, glue), (HIVE_PROPERTIES, hive), (FILE_PROPERTIES, pyarrow)],
    ids=["rest", "glue", "hive", "files"],
)
def test_every_property_is_one_that_pyiceberg_has_a_name_for_and_is_documented(
    names: dict[str, str], readers: ModuleType
) -> None:
    constants = {value for value in vars(readers).values() if isinstance(value, str)}
    unknown = [name for name in names if name not in constants and f'"{name}"' not in getsource(readers)]
    assert unknown == [name for name in (AUTH_TYPE,) if name in names], "Java's Iceberg has this one"
    assert [name for name in names if f"`{name}`" not in DOCS] == []


def complaint(name: str) -> str:
    properties = {"catalog_type": "Iceberg REST Server", "uri": "http://host", "warehouse": "lake"}
    with pytest.raises(InvalidConfigError) as raised:
        parse({"namespace": "shop", "catalog": {**properties, "properties": {name: "planted"}}}, [])
    path, _, text = str(raised.value).partition(": ")
    assert path == f"/catalog/properties/{name}"
    return text


def test_a_property_that_the_config_has_a_setting_for_is_told_which() -> None:
    pyiceberg_s = {
        value for module in (catalog, glue, io, rest) for value in vars(module).values() if isinstance(value, str)
    }
    assert SETTINGS.keys() <= pyiceberg_s
    assert complaint("s3.endpoint") == "cannot be set here: use /s3_endpoint"
    assert complaint("credential") == "cannot be set here: use /catalog/credential"


@pytest.mark.parametrize("name", ["s3.signer", "zzzzzz"])
def test_a_property_that_pyiceberg_would_not_read_is_said_to_be_one(name: str) -> None:
    assert complaint(name).startswith("is not a property that PyIceberg reads here; ")
