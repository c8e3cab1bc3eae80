"""The catalog properties that a config may have are those that PyIceberg reads."""

from pathlib import Path

import pytest
from pyiceberg.catalog import glue, rest
from pyiceberg.io import pyarrow

from connector.config.catalog_properties import FILE_PROPERTIES, GLUE_PROPERTIES, REST_PROPERTIES

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize(
    ("names", "readers"),
    [(REST_PROPERTIES, rest), (GLUE_PROPERTIES, glue), (FILE_PROPERTIES, pyarrow)],
    ids=["rest", "glue", "files"],
)
def test_every_property_is_one_that_pyiceberg_has_a_name_for_and_is_documented(
    names: dict[str, str], readers: object
) -> None:
    constants = {value for value in vars(readers).values() if isinstance(value, str)}
    assert set(names) <= constants
    assert [name for name in names if f"`{name}`" not in DOCS] == []
