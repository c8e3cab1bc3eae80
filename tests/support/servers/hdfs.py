"""HDFS of its own two servers, each in a JVM of its own on free loopback ports, and what its native client needs."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pyspark

from connector.spark.jvm.java import find_java
from support.jars import jars, leave_out
from support.repository import REPOSITORY
from support.servers.server_process import free_address, running
from support.sessions.processes import wait_until

JARS: Final = Path(pyspark.__file__).parent / "jars"
SERVERS: Final = "org.apache.hadoop.hdfs.server"
JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The user of the servers may do everything. The directory / belongs to the user of this process, who has formatted it.
OPERATOR: Final = {"HADOOP_USER_NAME": "operator"}
NAME_SERVICE: Final = "nameservice1"  # known only to the configuration of the client, as where there are two name nodes
LIVE_DATA_NODES: Final = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystem"


@dataclass(frozen=True)
class Hdfs:
    """Running servers, and the environment in which PyArrow reaches them."""

    uri: str
    environment: Mapping[str, str]


def client_environment() -> Mapping[str, str]:
    """The environment in which PyArrow finds Hadoop's native client; without it, the test is left out."""
    directory = REPOSITORY / ".cache" / "libhdfs"
    if not (directory / "libhdfs.so").exists():
        leave_out("needs libhdfs: install gcc and a JDK, and run scripts/setup --all-tests")
    clients = [*JARS.glob("hadoop-client-*.jar"), *JARS.glob("*slf4j*.jar"), *JARS.glob("log4j-*.jar")]
    return {
        "ARROW_LIBHDFS_DIR": str(directory),
        "CLASSPATH": ":".join(map(str, clients)),
        "JAVA_HOME": str(find_java().resolve().parents[1]),
        "LIBHDFS_OPTS": "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


@contextmanager
def hdfs(directory: Path) -> Iterator[Hdfs]:
    environment, classes = client_environment(), f"{directory}:{jars('hdfs')}/*:{JARS}/*"
    name_node, name_node_pages, data_node_pages = (free_address() for _ in range(3))
    settings = {
        "fs.defaultFS": f"hdfs://{name_node}",
        "dfs.namenode.http-address": name_node_pages,
        "dfs.namenode.name.dir": f"file://{directory}/names",
        "dfs.datanode.http.address": data_node_pages,
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.datanode.data.dir": f"file://{directory}/blocks",
        "dfs.replication": "1",
    }
    _configure(directory, settings)
    _configure(directory / "client", _name_service(name_node))
    virtual_machine = [str(find_java()), *JAVA_OPTIONS, "-cp", classes]
    names, blocks = ([*virtual_machine, f"{SERVERS}.{server}"] for server in ("namenode.NameNode", "datanode.DataNode"))
    with (directory / "format.log").open("wb") as log:
        subprocess.run([*names, "-format", "-nonInteractive"], stdout=log, stderr=log, check=True)
    with (
        running(names, OPERATOR, f"http://{name_node_pages}", directory / "names.log"),
        running(blocks, OPERATOR, f"http://{data_node_pages}", directory / "blocks.log"),
    ):
        assert wait_until(lambda: _live_data_nodes(name_node_pages) == 1)
        yield Hdfs(
            f"hdfs://{NAME_SERVICE}", {**environment, "CLASSPATH": f"{directory / 'client'}:{environment['CLASSPATH']}"}
        )


def _name_service(name_node: str) -> Mapping[str, str]:
    return {
        "dfs.nameservices": NAME_SERVICE,
        f"dfs.ha.namenodes.{NAME_SERVICE}": "only",
        f"dfs.namenode.rpc-address.{NAME_SERVICE}.only": name_node,
        f"dfs.client.failover.proxy.provider.{NAME_SERVICE}": f"{SERVERS}.namenode.ha.ConfiguredFailoverProxyProvider",
    }


def _configure(directory: Path, settings: Mapping[str, str]) -> None:
    properties = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    directory.mkdir(exist_ok=True)
    for file in ("core-site.xml", "hdfs-site.xml"):
        (directory / file).write_text(f"<configuration>{''.join(properties)}</configuration>")


def _live_data_nodes(pages: str) -> int:
    with urlopen(f"http://{pages}/{LIVE_DATA_NODES}", timeout=5) as answer:
        return sum(int(state["NumLiveDataNodes"]) for state in json.load(answer)["beans"])
