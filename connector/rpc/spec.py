"""Spec: describes the connector and its configs. Imports as little as possible, to answer at once."""

from pathlib import Path
from typing import Final

import msgspec

from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.resource_config import RESOURCE_SCHEMA
from protocol import response

# Flow's own documentation, for as long as the publisher of this connector names no other.
FLOW_DOCUMENTATION: Final = "https://docs.estuary.dev/concepts/materialization/"
ROOT: Final = Path(__file__).parents[2]  # a checkout, or the directory that the package is installed in
URLS_TABLE: Final = "[project.urls]"
URL_HEADER: Final = "Project-URL: Documentation, "


def spec() -> response.Spec:
    """Return the spec response."""
    return response.Spec(
        config_schema=ENDPOINT_SCHEMA,
        resource_config_schema=RESOURCE_SCHEMA,
        documentation_url=find_documentation_url(),
    )


def describe() -> str:
    """Return the spec response as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(spec()), indent=2).decode()


def find_documentation_url() -> str:
    """Return the address of the documentation: `Documentation` in pyproject.toml's [project.urls], or Flow's own."""
    # importlib.metadata would take longer to load than everything else that spec needs.
    metadata = next(ROOT.glob("materialize_iceberg-*.dist-info/METADATA"), None)
    return (_read_metadata(metadata) if metadata else _read_project(ROOT / "pyproject.toml")) or FLOW_DOCUMENTATION


def _read_metadata(file: Path) -> str:
    headers = file.read_text("utf-8").partition("\n\n")[0].splitlines()
    return next((line.removeprefix(URL_HEADER) for line in headers if line.startswith(URL_HEADER)), "")


def _read_project(file: Path) -> str:
    text = file.read_text("utf-8") if file.exists() else ""
    if URLS_TABLE not in text.splitlines():
        return ""  # loading tomllib takes time
    import tomllib

    return str(tomllib.loads(text)["project"]["urls"].get("Documentation", ""))
