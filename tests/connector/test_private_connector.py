"""The private parts that planted defects replace are in the connector."""

import pytest

from support import private_connector

PARTS = {name: part for name, part in vars(private_connector).items() if isinstance(part, tuple)}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_each_part_has_this_name(part: private_connector.Part) -> None:
    owner, name = part
    assert hasattr(owner, name)
