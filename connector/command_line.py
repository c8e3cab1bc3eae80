"""The command line. Without a command, it speaks the protocol on stdin and stdout."""

import logging
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connector.host import late_imports, logs, machine, signals
from connector.host.errors import ArgumentError, ConnectorError, UserError
from connector.host.redaction import hide_proxies, redact
from connector.rpc import spec
from protocol import stdio
from protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from argparse import Namespace

    from connector.cli.flow.flow_files import ConfigFile, FlowFile
    from connector.model.table_identifier import TableIdentifier

log = logging.getLogger("connector")

FAILED = 1
WRONG_ARGUMENTS = 2  # argparse's status
BROKEN = 70  # EX_SOFTWARE: a defect of the connector


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    stdio.ensure_stderr()
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:  # as the runtime calls it, which waits for the answer to its first request
        return _run_to_exit_status(_serve)
    if arguments == ["spec"]:  # to parse it would take a tenth of its time
        return _run_to_exit_status(_print_spec)
    from connector.cli.arguments import parse_arguments

    options = parse_arguments(arguments)
    if options.version:
        return _run_to_exit_status(partial(_print_versions, options))
    match options.command:
        case None:
            return _run_to_exit_status(_serve)
        case "spec":
            return _run_to_exit_status(_print_spec)
        case _:
            return _run_to_exit_status(partial(_run_command, options))


def _run_to_exit_status(work: Callable[[], int | None]) -> int:
    """Do the work, and return the exit status. An error becomes one log record."""
    # No core dumps: they would contain secrets. Spark's processes inherit this limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        return _run_and_tell(work)
    except signals.Stopped as stopped:  # perhaps while an error is told, if nobody reads stderr
        return stopped.exit_status


def _run_and_tell(work: Callable[[], int | None]) -> int:
    try:
        hide_proxies(os.environ)
        logs.configure()
        _check_working_directory()
        _ignore_settings_of_pyiceberg()
        late_imports.import_late()
        return work() or 0
    except (ConnectorError, ProtocolError) as error:
        log.error("%s", error)
        return WRONG_ARGUMENTS if isinstance(error, ArgumentError) else FAILED
    except Exception as error:
        log.debug("the traceback of what follows", exc_info=True)
        if advice := machine.explain_limit(error):
            log.error("%s", advice)
            return FAILED
        if file := _find_file_in_place_of_module():
            log.error("%s", _explain_other_module(error, file))
            return FAILED
        log.error("Internal error: %s: %s. Run with LOG_LEVEL=debug for a traceback.", type(error).__name__, error)
        return BROKEN


def _find_file_in_place_of_module() -> Path | None:
    """Return the first file that Python imports in place of a module of its own, if there is one."""
    standard = Path(os.__file__).parent
    for directory in map(Path, sys.path):
        if directory == standard:
            break
        for name in sorted(sys.stdlib_module_names):
            for file in (directory / f"{name}.py", directory / name / "__init__.py"):
                if file.is_file():
                    return file.absolute()
    return None


def _explain_other_module(error: Exception, file: Path) -> str:
    return (
        f"{type(error).__name__}: {error}. This is probably because of {file}, which Python imports in place of its "
        "own module of this name. Rename it, remove its directory from PYTHONPATH, or start in another directory."
    )


def _serve() -> None:
    # The next file that is opened would get a closed descriptor, and then the responses.
    if sys.stdin is None or sys.stdout is None:
        raise UserError("stdin and stdout must be open: requests come from stdin, and responses go to stdout.")
    wire = stdio.claim_stdout()
    _check_codec()
    signals.install(wire)
    machine.allow_many_files()
    if sys.stdin.isatty():
        log.info("reading requests of Flow's protocol, JSON lines, from this terminal; --help lists the commands")
    # Set before PyArrow is loaded. PyArrow takes ten megabytes for each small file that it writes to S3, and its
    # default allocator would not give them back.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    from connector import driver

    driver.serve(stdio.RequestReader(stdio.claim_stdin()), wire)


def _print_spec() -> None:
    _show(spec.describe())


def _print_versions(options: "Namespace") -> None:
    from connector.cli.commands import version_command

    _show(version_command.describe_version(as_json=options.json))


def _plan(options: "Namespace") -> None:
    from connector.cli.commands import plan_command
    from connector.cli.flow.flow_files import FlowFile
    from connector.cli.waiting import on_stderr

    if options.flow:
        source = FlowFile(options.flow, options.task)
        actions = on_stderr().show("plan", lambda: plan_command.plan_task(source, options.state))
    elif sys.stdin is None:
        raise UserError("stdin must be open: the requests are read from it.")
    else:
        actions = plan_command.plan_recorded(stdio.RequestReader(stdio.claim_stdin()))
    _show(plan_command.describe_plan(actions, as_json=options.json))


def _check(options: "Namespace") -> int:
    from connector.cli.commands import check_command
    from connector.cli.waiting import on_stderr

    passed = check_command.check(
        _find_source(options), _show, on_stderr(), as_json=options.json, may_write=options.write
    )
    return 0 if passed else FAILED


def _demo(options: "Namespace") -> None:
    from connector.cli.commands import demo_command

    demo = demo_command.Demo(options.file, options.key, options.config, options.into, options.updates)
    demo_command.run_demo(demo, _show, as_json=options.json)


def _inspect(options: "Namespace") -> int:
    from connector.cli.commands import inspect_command
    from connector.cli.waiting import on_stderr

    inspection = inspect_command.InspectArguments(
        _find_source(options), options.table, options.materialization, options.state
    )
    inspected = on_stderr().show("inspect", lambda: inspect_command.inspect_tables(inspection))
    encode = inspect_command.encode_tables if options.json else inspect_command.describe_tables
    _show_tables(encode(inspected), inspected.errors)
    return FAILED if inspected.errors else 0


def _maintain(options: "Namespace") -> int:
    from connector.cli.commands import maintain_command
    from connector.cli.texts import maintain_texts
    from connector.cli.waiting import on_stderr

    maintained = maintain_command.maintain_tables(
        maintain_command.read_arguments(options, _find_source(options)), on_stderr()
    )
    encode = maintain_texts.encode_maintenance if options.json else maintain_texts.describe_maintenance
    _show_tables(encode(maintained), maintained.errors)
    if maintained.defect:
        raise maintained.defect
    return FAILED if maintained.errors else 0


def _fence(options: "Namespace") -> None:
    from connector.cli.commands import fence_command
    from connector.iceberg.commits.reset import Decision

    arguments = fence_command.FenceArguments(
        _find_source(options), options.table, options.materialization, options.state
    )
    if options.action == "show":
        _show(fence_command.show(arguments, as_json=options.json))
        return
    _show(
        fence_command.reset(
            arguments,
            (options.state_key, options.key_range),
            Decision(options.staged),
            options.reason,
            is_confirmed=options.yes,
            as_json=options.json,
        )
    )


def _run_command(options: "Namespace") -> int | None:
    _check_stdout()
    signals.install()
    return COMMANDS[options.command](options)


COMMANDS: Final[Mapping[str, Callable[["Namespace"], int | None]]] = {
    "check": _check,
    "plan": _plan,
    "inspect": _inspect,
    "fence": _fence,
    "maintain": _maintain,
    "demo": _demo,
}


def _find_source(options: "Namespace") -> "ConfigFile | FlowFile":
    """Return the file that the task is read from."""
    from connector.cli.flow.flow_files import ConfigFile, FlowFile

    return FlowFile(options.flow, options.task) if options.flow else ConfigFile(options.config)


def _show_tables(text: str, errors: "Sequence[tuple[TableIdentifier, str]]") -> None:
    """Print what is known of tables. The errors are logged last, since the end of the log says what to change."""
    if text:
        _show(text)
    for path, error in errors:
        log.error("table %s: %s", path, error)


def _show(text: str) -> None:
    """Print the text. If stdout takes nothing, the exit status says so."""
    _check_stdout()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: the locale's encoding may lack characters
    with signals.writing_to_stdout():
        print(logs.show_controls(redact(text)), flush=True)  # noqa: T201 - the output of a command; nothing else prints


def _check_stdout() -> None:
    # The next file that is opened would get a closed descriptor.
    if sys.stdout is None:
        raise UserError("stdout must be open: the command prints to it.")


def _check_working_directory() -> None:
    try:
        os.getcwd()  # libraries look for their files there
    except FileNotFoundError:
        raise UserError("the working directory was deleted. Start in a directory that exists.") from None


def _ignore_settings_of_pyiceberg() -> None:
    """Let the config alone decide. PyIceberg also reads settings from the environment, and from the first file that it
    finds: ours, which sets nothing that is used."""
    for name in [each for each in os.environ if each.upper().startswith("PYICEBERG_")]:
        del os.environ[name]
    os.environ["PYICEBERG_HOME"] = str(Path(__file__).with_name("iceberg"))


def _check_codec() -> None:
    codec = os.environ.get("FLOW_RUNTIME_CODEC") or "json"
    if codec != "json":
        raise UserError(f"FLOW_RUNTIME_CODEC is {codec!r}, but this connector speaks only json.")
