"""`check`: checks, step by step, whether a config works on this machine."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

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
from connector.cli.flow.flow_files import ConfigFile, FlowFile, Task
from connector.cli.flow.task_requests import find_last, make_validate
from connector.cli.waiting import WaitingLine
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.metrics_options import MetricsOptions
from connector.config.resource_config import ResourceConfig
from connector.config.settings import parse
from connector.host.cgroup import Cgroup
from connector.host.errors import ConnectorError
from connector.host.machine import count_files
from connector.host.tempdirs import make_directories, temporary_directory, translate_disk_errors
from connector.iceberg.catalog_messages import read_address
from connector.iceberg.catalogs.opening import find_missing_warehouse, find_warehouse
from connector.rpc.validate import validate
from connector.spark.jvm.cluster import check_master
from connector.spark.jvm.jvm_process import check_files
from connector.spark.limits import Limits, find_memory

PROBE_SIZE: Final = 1 << 20  # bytes: with less room, no transaction can be written
GIGABYTE: Final = 1e9
MARKS: Final = {"ok": "✓", "failed": "✗", "skipped": "-"}

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ParsedTask:
    """A task whose configs are valid."""

    task: Task
    endpoint: EndpointConfig
    resources: Sequence[ResourceConfig]


@dataclass(frozen=True)
class StepLine:
    """What is printed about a step."""

    name: str
    outcome: str  # of MARKS
    seconds: float
    message: str


def check(
    source: ConfigFile | FlowFile,
    say: Callable[[str], None],
    waiting: WaitingLine,
    *,
    as_json: bool,
    may_write: bool = False,
) -> bool:
    """Print the result of each step as soon as it is known, or all of them as JSON. Return whether all steps passed.

    If it `may_write`, it also creates a probe table, and drops it.
    """
    done = []
    for line in _run_steps(source, waiting, may_write=may_write):
        done.append(line)
        if not as_json:
            say(_format(line))
    failed = sum(line.outcome == "failed" for line in done)
    if as_json:
        steps = [{**asdict(line), "seconds": round(line.seconds, 3)} for line in done]
        say(json.dumps({"ok": not failed, "steps": steps}, indent=2))
    else:
        say(f"{failed} of {len(done)} checks failed." if failed else "All checks passed.")
    return not failed


def _run_steps(source: ConfigFile | FlowFile, waiting: WaitingLine, *, may_write: bool) -> Iterator[StepLine]:
    def run(name: str, check: Callable[[], T]) -> Step[T]:
        return waiting.show(name, lambda: attempt(name, check))

    def run_after(earlier: Step[T], name: str, check: Callable[[T], R | Skipped]) -> Step[R]:
        return waiting.show(name, lambda: earlier.then(name, check))

    parsed = run("config", lambda: _parse(source))
    yield _describe(parsed, lambda _: "is valid")
    opened = run_after(parsed, "catalog", lambda found: open_endpoint(found.endpoint))
    yield _describe(opened, _describe_catalog)
    with closing(opened.found.catalog) if opened.found else nullcontext():
        namespace = run_after(
            opened,
            "namespace",
            lambda found: look_up_namespace(found, found.config.own_namespace),
        )
        yield _describe(namespace, _describe_namespace)
        yield _describe(run_after(namespace, "table", try_to_create), lambda _: "could be created")
        storage = run_after(parsed, "storage", lambda found: try_storage(found.endpoint, opened.found))
        yield _describe(storage, lambda place: f"a file was written, read and deleted in {place}")
        if may_write:
            yield _describe(run_after(namespace, "commits", _try_commits), _describe_commits)
    if isinstance(source, FlowFile):
        needed: Step[Any] = opened if opened.found is None else storage
        yield _describe(run_after(needed, "bindings", lambda _: _validate(parsed)), _describe_bindings)
    yield _describe(run("java", spark_installation.find_installation), _describe_java)
    yield _describe(run_after(parsed, "spark", lambda found: check_master(found.endpoint.advanced.spark)), str)
    yield _describe(run("limits", _find_limits), str)
    yield _describe(run("disk", _find_free_space), str)
    if parsed.found and (metrics := parsed.found.endpoint.advanced.metrics).are_on:
        yield _describe(run("metrics", lambda: _try_metrics(metrics)), str)


def _parse(source: ConfigFile | FlowFile) -> ParsedTask:
    task = source.read()
    return ParsedTask(task, *parse(task.config, [binding.resource for binding in task.bindings]))


def _validate(parsed: Step[ParsedTask]) -> list[str]:
    """Validate the bindings after what the tables say of the task, as publishing it does. Return their tables."""
    assert parsed.found, "its catalog was opened"
    last = find_last(parsed.found.task, parsed.found.endpoint, parsed.found.resources)
    answers = validate(make_validate(parsed.found.task, last))
    return [".".join(binding.resource_path) for binding in answers.bindings]


def _try_commits(namespace: Namespace) -> int:
    from connector.checks.commit_probe import try_false_commits  # commits are slow to import

    return try_false_commits(namespace)


def _try_metrics(options: MetricsOptions) -> str:
    from connector.metrics.publishing import try_metrics

    try_metrics(options)
    places = [str(options.listen)] * bool(options.listen) + [str(options.file)] * bool(options.file)
    return f"can be published at {' and in '.join(places)}"


def _find_limits() -> str:
    """Say what a session would have here. Raises UserError if it would refuse to open."""
    group, files = Cgroup(), count_files()
    check_files(files)
    Limits.of(group, temporary_directory())
    memory = "unlimited" if (size := find_memory(group)) is None else f"{size >> 20} MB of"
    return f"{memory} memory and {'unlimited' if files is None else files} open files are enough for a session"


def _find_free_space() -> str:
    with make_directories() as directories:
        free, parent = shutil.disk_usage(directories.files).free, directories.files.parent
        with translate_disk_errors(f"file in {parent}"):
            (directories.files / "probe").write_bytes(bytes(PROBE_SIZE))
        return f"{free / GIGABYTE:.1f} GB are free for temporary files in {parent}"


def _describe_catalog(opened: OpenedEndpoint) -> str:
    match opened.config.catalog:
        case LocalCatalog() if missing := find_missing_warehouse(opened.config):
            return f"the Local catalog in {missing} does not exist yet: publishing a task creates it"
        case LocalCatalog() as catalog:
            return f"the Local catalog in {find_warehouse(catalog)} is open"
        case RestCatalog(uri, ""):
            return f"the REST catalog at {read_address(uri)} is open"
        case RestCatalog(uri, warehouse):
            return f"the REST catalog at {read_address(uri)} with warehouse {warehouse} is open"
        case S3TablesCatalog(arn):
            return f"Amazon S3 Tables' {arn} is open"
        case SqlCatalog(uri):
            return f"the SQL catalog at {uri} is open"
        case HiveCatalog(uri):
            return f"the Hive metastore at {uri} is configured"
        case GlueCatalog():
            return f"AWS Glue in {opened.config.region} is open"


def _describe_namespace(found: Namespace) -> str:
    return f"{found.name} exists" if found.exists else f"{found.name} is created when a task is published"


def _describe_java(found: SparkInstallation) -> str:
    return f"Java {found.java_version} ({found.java}) for PySpark {found.pyspark_version}"


def _describe_commits(count: int) -> str:
    return f"{count} commits to a probe table that assert something false were refused"


def _describe_bindings(tables: Sequence[str]) -> str:
    return f"are valid: {', '.join(tables)}" if tables else "the task has none"


def _describe(step: Step[T], describe_found: Callable[[T], str]) -> StepLine:
    match step.outcome:
        case ConnectorError() as error:
            return StepLine(step.name, "failed", step.seconds, str(error))
        case Skipped(why):
            return StepLine(step.name, "skipped", step.seconds, f"not checked: {why}")
        case found:
            return StepLine(step.name, "ok", step.seconds, describe_found(found))


def _format(line: StepLine) -> str:
    text = line.message.replace("\n", f"\n{' ' * 12}")
    return f"{MARKS[line.outcome]} {line.name:<9} {text} ({line.seconds:.2f} s)"
