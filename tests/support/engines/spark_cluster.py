"""A standalone Spark cluster on one machine: a master, and two workers that stand for two machines."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from connector.spark.jvm.java import find_java
from connector.spark.jvm.jvm_command import find_spark_home
from support.jars import leave_out
from support.servers.server_process import free_address, running
from support.sessions.processes import marked, new_mark, wait_until

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
PYTHON_WORKER: Final = "pyspark.worker"
VECTORS: Final = "jdk.incubator.vector"


@dataclass(frozen=True)
class Machine:
    """A worker, and whatever it has started."""

    mark: dict[str, str]

    def runs(self, command: str) -> bool:
        return any(command in each for each in marked(self.mark).values())

    def kill(self, command: str = "") -> None:
        """End those of its processes whose command line has this in it, as a crash would."""
        for pid, each in marked(self.mark).items():
            if command in each:
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class SparkCluster:
    master: str
    machines: Sequence[Machine]

    def settings(self, **more: str) -> dict[str, str]:
        """For small executors. `more` has underscores for dots."""
        sizes = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        return {"spark.master": self.master, **sizes, **{name.replace("_", "."): value for name, value in more.items()}}

    def machine_of_executor(self) -> Machine:
        """The one that has the executor, if there is only one."""
        [machine] = [machine for machine in self.machines if machine.runs(EXECUTOR)]
        return machine


@contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if VECTORS not in modules:  # Spark starts every executor with it
        leave_out(f"needs a Java with the module {VECTORS}, which small runtimes leave out")
    master, console = free_address(), free_address()
    with ExitStack() as servers:
        servers.enter_context(_server("master.Master", master, console, {}, directory / "master", ()))
        machines = []
        for name in ("first", "second"):
            machine = Machine(new_mark())
            servers.callback(machine.kill)
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / name / "work"))
            arguments = (*sizes, f"spark://{master}")
            servers.enter_context(
                _server("worker.Worker", free_address(), free_address(), machine.mark, directory / name, arguments)
            )
            machines.append(machine)
        assert wait_until(lambda: _workers(console) == len(machines))
        yield SparkCluster(f"spark://{master}", machines)


@contextmanager
def _server(
    name: str, address: str, console: str, environment: Mapping[str, str], directory: Path, arguments: Sequence[str]
) -> Iterator[None]:
    directory.mkdir(parents=True)
    host, port = address.split(":")
    command_of_java, home = find_java(), find_spark_home()
    command = [
        str(command_of_java),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{home}/jars/*",
        "-Dspark.master.rest.enabled=false",
    ]
    command += [f"org.apache.spark.deploy.{name}", "--host", host, "--port", port]
    command += ["--webui-port", console.split(":")[1], *arguments]
    own = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_SCALA_VERSION": "2.13",  # what Spark's own scripts tell its launcher
        "JAVA_HOME": str(command_of_java.resolve().parents[1]),
    }
    with running(command, {**own, **environment}, f"http://{console}", directory / "server.log"):
        yield


def _workers(console: str) -> int:
    with urlopen(f"http://{console}/json/", timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"])
