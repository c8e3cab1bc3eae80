"""Spec: describes the connector and its configs, as `spec.json` does. Imports as little as possible, to answer at once.

A test compares the file with the schemas that configs are checked against. With UPDATE_SNAPSHOTS, it writes the file.
"""

from pathlib import Path
from typing import Final

import msgspec

from protocol import response

# Flow's own documentation, for as long as the publisher of this connector names no other.
FLOW_DOCUMENTATION: Final = "https://docs.estuary.dev/concepts/materialization/"
DESCRIPTION: Final = Path(__file__).with_name("spec.json")
ROOT: Final = Path(__file__).parents[2]  # a checkout, or the directory that the package is installed in
URLS_TABLE: Final = "[project.urls]"
URL_HEADER: Final = "Project-URL: Documentation, "


def spec() -> response.Spec:
    """Return the spec response."""
    described = msgspec.json.decode(DESCRIPTION.read_bytes(), type=response.Spec)
    return msgspec.structs.replace(described, documentation_url=find_documentation_url())


def describe() -> str:
    """Return the spec response as indented JSON."""
    return indent(spec())


def indent(answer: response.Spec) -> str:
    """Return a spec response as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


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
