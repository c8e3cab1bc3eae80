"""Spec: describes the connector and its configs. Imports as little as possible, to answer at once."""

from typing import Final

import msgspec

from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.resource_config import RESOURCE_SCHEMA
from protocol import response

DOCUMENTATION_URL: Final = "https://example.com/materialize-iceberg/README.md"


def spec() -> response.Spec:
    """Return the spec response."""
    return response.Spec(
        config_schema=ENDPOINT_SCHEMA,
        resource_config_schema=RESOURCE_SCHEMA,
        documentation_url=DOCUMENTATION_URL,
    )


def describe() -> str:
    """Return the spec response as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(spec()), indent=2).decode()
