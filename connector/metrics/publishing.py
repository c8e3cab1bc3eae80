"""Publishes the metrics of a session: facts are counted from now on, and anyone may read the numbers."""

import logging
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Final

from connector import VERSION
from connector.config.metrics_options import MetricsOptions
from connector.host import facts
from connector.host.cgroup import Cgroup
from connector.host.errors import UserError
from connector.host.processes import read_memory
from connector.metrics import definitions
from connector.metrics.counts import Counts
from connector.metrics.fact_counter import FactCounter
from connector.metrics.http_server import serve_metrics, try_to_listen
from connector.metrics.text_file import try_directory, write_metrics
from protocol.flow import WHOLE_RANGE

TEMPORARY_FILES: Final = "temporary_files"  # a value of the label `process`: those in memory count like a process

log = logging.getLogger(__name__)


@contextmanager
def publish_metrics(options: MetricsOptions, task: str, key_range: str) -> Iterator[None]:
    """Count facts, and publish the numbers until the block ends. Raises UserError if that is not possible.

    The shards of a task have one config, and may run on one machine. So a shard of a part of the key range has a label
    and a file of its own. If another one has the port already, it goes on without.
    """
    is_whole = key_range == WHOLE_RANGE.key_range
    counts = Counts({"task": task} if is_whole else {"task": task, "key_range": key_range})
    counts.set(definitions.BUILD, 1, VERSION, platform.python_version(), version("pyspark"), version("pyiceberg"))
    counter = FactCounter(counts)
    group = Cgroup()

    def refresh() -> None:
        counter.show_waiting()
        _measure_memory(counts, group)

    registry = counts.make_registry(refresh)
    with ExitStack() as resources:
        if options.listen:
            try:
                resources.enter_context(serve_metrics(options.listen, registry))
            except UserError as error:
                if is_whole:
                    raise
                log.warning("the metrics of this shard are not served by HTTP: %s", error)
        if file := options.file:
            own = file if is_whole else file.with_name(f"{file.stem}-{key_range}{file.suffix}")
            resources.enter_context(write_metrics(own, registry))
        facts.report = counter.count
        yield


def try_metrics(options: MetricsOptions) -> None:
    """Check that metrics can be published, and change nothing. Raises UserError if they cannot."""
    if options.listen:
        try_to_listen(options.listen)
    if options.file:
        try_directory(options.file)


def _measure_memory(counts: Counts, group: Cgroup) -> None:
    memory = read_memory()
    if limit := group.memory:  # without a limit, the group may have files of many other programs
        memory[TEMPORARY_FILES] = group.files_in_memory
        counts.set(definitions.MEMORY_LIMIT, limit)
    counts.replace(definitions.MEMORY, {(process,): float(size) for process, size in memory.items()})
