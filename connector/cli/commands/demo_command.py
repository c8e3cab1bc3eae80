"""`demo`: materializes documents into a table, and shows the table. Without a config, the table is in a directory."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, TypeAlias

from pyiceberg.table import Table

from connector.cli.commands.demo_conversation import Stored, materialize
from connector.cli.config_files import STDIN, read_config
from connector.cli.flow.document_shape import infer_document_shape
from connector.cli.flow.documents import DocumentFile, open_documents
from connector.cli.flow.projections import make_collection
from connector.cli.texts.health_texts import format_count
from connector.cli.texts.table_lines import count_rows, describe_table, explain_opening
from connector.config.catalog import LOCAL, LocalCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse, resource_path
from connector.host.errors import ArgumentError, UserError
from connector.host.tempdirs import temporary_directory, translate_disk_errors
from connector.iceberg.catalogs.local import CATALOG_FILE, NO_WAREHOUSE
from connector.iceberg.catalogs.opening import open_without_creating, translate_errors
from connector.iceberg.loaded_tables import load_table
from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json

NAMESPACE: Final = "demo"
DIRECTORY: Final = "warehouse"
SAMPLE: Final = "orders"
SAMPLE_KEY: Final = "order_id"
SAMPLE_ORDERS: Final = b"""\
{"order_id":1,"customer":{"id":"c-17","city":"Berlin"},"ordered_at":"2026-11-02T08:15:00Z","total":29.9,"paid":true}
{"order_id":2,"customer":{"id":"c-4","city":"Kyoto"},"ordered_at":"2026-11-02T08:40:30Z","total":7.5,"paid":false}
{"order_id":3,"customer":{"id":"c-17"},"ordered_at":"2026-11-02T09:05:10Z","total":120,"paid":true,"note":null}
{"order_id":4,"customer":{"id":"c-9","city":"Lima"},"ordered_at":"2026-11-02T09:31:59Z","total":54.25,"paid":true,\
"note":"a gift","items":[{"product":"kettle","quantity":1},{"product":"mug","quantity":2}]}
"""

Show: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """The arguments: a file of documents with the key of its collection, or neither, and where the table is."""

    file: str | None
    key: Sequence[str]
    config: str | None  # a file with an endpoint config
    into: str | None  # or a warehouse directory
    updates: bool  # one row for each key, instead of one for each document


def run_demo(demo: Demo, show: Show, *, as_json: bool) -> None:
    """Materialize the documents, and show the conversation and the table; as JSON, show only what was done.

    Raises ConnectorError if that fails.
    """
    key = [_make_pointer(each) for each in demo.key] or [f"/{SAMPLE_KEY}"]
    say = _ignore if as_json else show
    with _open_documents(demo) as documents:
        repeated = _count_repeated_keys(documents, key)
        shape = infer_document_shape(document.value for document in documents)
        config = read_config(demo.config) if demo.config else _make_config(demo.into)
        resource = {"table": _name_table(demo.file), "delta_updates": not demo.updates}
        endpoint, [parsed] = parse(config, [resource])
        warehouse, table = _find_warehouse(endpoint), resource_path(endpoint, parsed)
        if warehouse:
            say(f"warehouse: {warehouse}")
        if found := _load_table(endpoint, table):
            does = "updates them, or adds to them" if demo.updates else "adds to them"
            say(f"{table} has {format_count(count_rows(found), 'row')} already. A new transaction {does}.")
        way_out = _describe_way_out(demo) if found else ""
        collection = make_collection("/".join(table), key, shape, ())
        stored = materialize(collection, resource, documents, config, say, way_out)
    materialized = _load_table(endpoint, table)
    assert materialized is not None
    if as_json:
        show(_encode(materialized, warehouse, stored, repeated))
        return
    show("\n".join(("", *describe_table(materialized), "")))
    show("\n".join(_describe_transaction(stored, repeated, updates=demo.updates)))
    if warehouse:
        show("\n".join(("", *explain_opening(materialized, warehouse / CATALOG_FILE))))
    else:
        show(f"\nThe newest metadata file of {table} is {materialized.metadata_location}")


def _describe_way_out(demo: Demo) -> str:
    """Say how the documents get another table than the one that is there."""
    rename = "" if demo.file in (None, STDIN) else "give the file of documents another name, or "
    other = "set another namespace in the config" if demo.config else "name another directory with --into"
    return f"To start with a new table, {rename}{other}."


def _describe_transaction(stored: Stored, repeated: int, *, updates: bool) -> Iterator[str]:
    """Yield the sentences that say what became of the documents, of which so many have the key of an earlier one."""
    if not updates:
        yield f"This transaction added {format_count(stored.rows, 'row')}."
        if repeated:
            yield f"Rows whose key an earlier row has: {repeated}. With delta updates, each document becomes a row."
        return
    added = format_count(stored.rows - stored.replaced, "row")
    yield f"This transaction added {added}, and replaced {stored.replaced:,}."
    if repeated:
        yield f"Documents whose key an earlier document has: {repeated}. The last document of each key counts."


def _ignore(_: str) -> None:
    """Show nothing."""


def _encode(table: Table, warehouse: Path | None, stored: Stored, repeated: int) -> str:
    return json.dumps(
        {
            "warehouse": warehouse and str(warehouse),
            "table": str(TableIdentifier.of(table)),
            "metadata": table.metadata_location,
            "rows": count_rows(table),
            "added": stored.rows - stored.replaced,
            "replaced": stored.replaced,
            "repeatedKeys": repeated,
        },
        indent=2,
    )


@contextmanager
def _open_documents(demo: Demo) -> Iterator[DocumentFile]:
    if demo.file is None:
        if demo.key:
            raise ArgumentError("--key needs a file of documents: the sample has its own key.")
        yield DocumentFile("the sample", BytesIO(SAMPLE_ORDERS))
        return
    if not demo.key:
        raise ArgumentError(
            f"--key is missing: name the field that identifies a document of {demo.file}, such as --key id. Repeat it "
            "for a key of several fields."
        )
    with open_documents(demo.file) as documents:
        yield documents


def _make_pointer(key: str) -> str:
    """Return the JSON pointer of a field, which may be a pointer already."""
    return key if key.startswith("/") else f"/{key}"


def _name_table(file: str | None) -> str:
    if file is None:
        return SAMPLE
    name = "" if file == STDIN else Path(file).stem
    return re.sub(r"\W+", "_", name.lower()).strip("_") or "documents"


def _count_repeated_keys(documents: DocumentFile, key: Sequence[str]) -> int:
    """Count the documents whose key an earlier one has. Raises UserError if there is no document, or one has no key."""
    keys = Counter(json.dumps(documents.read_key(document, key)) for document in documents)
    if not keys:
        raise UserError(f"{documents.name} has no documents. Each line must be one: a JSON object.")
    return keys.total() - len(keys)


def _make_config(into: str | None) -> Json:
    """Return the config of an embedded catalog in a directory."""
    return {
        "namespace": NAMESPACE,
        "catalog": {"catalog_type": LOCAL, "warehouse": str(_make_warehouse(into))},
    }


def _make_warehouse(into: str | None) -> Path:
    """Return the absolute path of the directory. A container may have no directory of its own that can be written."""
    if into or os.access(Path.cwd(), os.W_OK):
        return Path(into or DIRECTORY).resolve()
    temporary = temporary_directory()
    with translate_disk_errors(f"directory in {temporary}"):
        return Path(mkdtemp(prefix=f"{DIRECTORY}-", dir=temporary)).resolve()


def _find_warehouse(endpoint: EndpointConfig) -> Path | None:
    """Return the directory of a Local catalog; None for any other catalog."""
    if not isinstance(endpoint.catalog, LocalCatalog):
        return None
    if endpoint.catalog.warehouse is None:  # the connector's process would have a temporary directory of its own
        raise UserError(NO_WAREHOUSE)
    return endpoint.catalog.warehouse


def _load_table(endpoint: EndpointConfig, path: TableIdentifier) -> Table | None:
    with translate_errors(endpoint):
        return load_table(open_without_creating(endpoint), path)
