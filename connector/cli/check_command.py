"""`check`: a person finds out, step by step, whether a config can be used on this machine."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from typing import Any, Final

from connector.checks import spark_installation
from connector.checks.endpoint import (
    Namespace,
    OpenedEndpoint,
    look_up_namespace,
    open_endpoint,
    try_storage,
    try_to_create,
)
from connector.checks.spark_installation import SparkInstallation
from connector.checks.steps import Skipped, Step, attempt
from connector.cli.json_file import read_json
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.settings import parse
from connector.host.errors import ConnectorError
from connector.host.tempdirs import make_directories
from connector.iceberg.catalogs.opening import warehouse_of
from connector.iceberg.catalogs.rest_errors import address
from connector.spark.cluster import where_tasks_run

GIGABYTE: Final = 1e9


def check(file: str, say: Callable[[str], None], *, as_json: bool) -> bool:
    """Say what is found, a line a step as soon as it is done, or all of it as JSON; whether nothing stands in the way.
    The config is in the file, or with `-` on stdin."""
    done = []
    for step in _steps(file):
        done.append(step)
        if not as_json:
            say(_line(step))
    failed = sum(step.error is not None for step in done)
    if as_json:
        say(json.dumps({"ok": not failed, "steps": [_as_json(step) for step in done]}, indent=2))
    else:
        say(f"{failed} of {len(done)} checks failed." if failed else "Nothing stands in the way.")
    return not failed


def _steps(file: str) -> Iterator[Step[Any]]:
    parsed = attempt("config", lambda: parse(read_json(file), [])[0])
    yield parsed
    opened = parsed.then("catalog", open_endpoint)
    yield opened
    with closing(opened.found.catalog) if opened.found else nullcontext():
        namespace = opened.then("namespace", lambda found: look_up_namespace(found, found.config.namespace.lower()))
        yield namespace
        yield namespace.then("table", try_to_create)
        yield parsed.then("storage", lambda config: try_storage(config, opened.found))
    yield attempt("java", spark_installation.find_installation)
    yield parsed.then("spark", lambda config: where_tasks_run(dict(config.advanced.spark)))
    yield attempt("disk", _scratch_directory)


def _scratch_directory() -> str:
    with make_directories() as directories:
        free = shutil.disk_usage(directories.files).free
        return f"{free / GIGABYTE:.1f} GB are free for temporary files in {directories.files.parent}"


def _catalog(opened: OpenedEndpoint) -> str:
    match opened.config.catalog:
        case LocalCatalog() as catalog:
            return f"the Local catalog in {warehouse_of(catalog)} is open"
        case RestCatalog(uri, warehouse):
            return f"the REST catalog at {address(uri)} with warehouse {warehouse} is open"
        case S3TablesCatalog(arn):
            return f"Amazon S3 Tables' {arn} is open"
        case SqlCatalog(uri):
            return f"the SQL catalog at {uri} is open"
        case HiveCatalog(uri):
            return f"the Hive metastore at {uri} is named"
        case GlueCatalog():
            return f"AWS Glue in {opened.config.region} is open"


def _namespace(found: Namespace) -> str:
    return f"{found.name} exists" if found.exists else f"{found.name} is made when a task is published"


def _java(found: SparkInstallation) -> str:
    return f"Java {found.java_version} ({found.java}) for PySpark {found.pyspark_version}"


# What a step's finding says to a person.
FINDINGS: Final[Mapping[str, Callable[[Any], str]]] = {
    "config": lambda _: "is valid",
    "catalog": _catalog,
    "namespace": _namespace,
    "table": lambda _: "could be created",
    "storage": lambda place: f"a file was written, read and deleted in {place}",
    "java": _java,
    "spark": str,
    "disk": str,
}
MARKS: Final = {"ok": "✓", "failed": "✗", "skipped": "-"}


def _outcome(step: Step[Any]) -> str:
    match step.outcome:
        case ConnectorError():
            return "failed"
        case Skipped():
            return "skipped"
        case _:
            return "ok"


def _text(step: Step[Any]) -> str:
    match step.outcome:
        case ConnectorError() as error:
            return str(error)
        case Skipped(why):
            return f"not checked: {why}"
        case found:
            return FINDINGS[step.name](found)


def _line(step: Step[Any]) -> str:
    text = _text(step).replace("\n", f"\n{' ' * 12}")
    return f"{MARKS[_outcome(step)]} {step.name:<9} {text} ({step.seconds:.2f} s)"


def _as_json(step: Step[Any]) -> dict[str, Any]:
    return {"name": step.name, "outcome": _outcome(step), "seconds": round(step.seconds, 3), "message": _text(step)}
