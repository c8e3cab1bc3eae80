"""The command that starts Spark's JVM, and the environment that it and Spark's Python workers get."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import connector
from connector.host.processes import NOT_INHERITED
from connector.spark.jvm.java import find_java

YOUNG_GENERATION: Final = "24m"
WORKER_ALLOCATION: Final = {
    "MALLOC_ARENA_MAX": "2",  # one for each of the JVM's and Arrow's threads would take a hundred megabytes
    # The next batch needs what a batch has freed: returning it to the system in between costs a fifth of the decoding.
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    # The C library cannot reuse the aligned memory that Arrow frees: a worker would grow by 10 MB with every table.
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
# Spark insists on a user name, and a container's user may have none. HADOOP_USER_NAME would make the tasks another user
# of HDFS than this process.
USER: Final = {"SPARK_USER": "flow"}
# Otherwise Java cannot open a directory whose name the user's locale cannot encode, and the system's messages, by which
# errors are recognised, are in the user's language.
LOCALE: Final = {"LC_ALL": "C.UTF-8", "LANGUAGE": ""}
OPENED_PACKAGES: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)

SECRET_VARIABLES: Final = re.compile(
    r"(?i)secret|passw|passphrase|pgpass|token|credential|(access|account|api|app|private|signing|storage)_?key"
    r"|connection_string|(^|_)(pass|pat|sas)$|(?<!^)(?<!^old)pwd$|^AWS_PROFILE$|^PYICEBERG_CATALOG__"
)
# In the value of a variable, and no port with a path. The tasks need those of proxies.
PASSWORD: Final = re.compile(r"//[^/\s]*:(?![0-9]*/)\S+@")
PROXY: Final = re.compile(r"(?i)_proxy$")
OTHER_SPARK: Final = re.compile("^(PY)?SPARK_")  # settings of another Spark, such as that of a cluster's node
HADOOP_TOKENS: Final = "HADOOP_TOKEN_FILE_LOCATION"  # the file that signs tasks in to HDFS


def locate_class_archive() -> Path:
    """Return the path of the class-data-sharing archive (see class_archive.py), which may not exist."""
    return Path(sys.prefix) / "share" / "materialize-iceberg" / "spark-classes.jsa"


def find_spark_home() -> Path:
    """Return the directory of the installed PySpark."""
    pyspark = find_spec("pyspark")  # importing it takes a third of a second, in which the JVM can be starting
    assert pyspark is not None
    assert pyspark.origin is not None
    return Path(pyspark.origin).parent


def make_command(heap: str, temporary: Path, jars: Sequence[Path]) -> list[str]:
    """Return the command line of the JVM.

    `heap` is its maximum size, as in 512m. `temporary` is for the JVM's temporary files. `jars` have its classes.

    Raises UserError if there is no Java.
    """
    return [
        str(find_java()),
        f"-Xmx{heap}",
        "-Xss512k",
        "-XX:+UseSerialGC",
        # By default a sixty-fourth of the machine's memory fills with garbage before any is collected.
        f"-Xmn{YOUNG_GENERATION}",
        "-XX:InitialRAMPercentage=0.01",  # the rest of the heap begins with 6 MB, and grows with what is alive
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        # A JVM that crashes would leave its report in the working directory.
        f"-XX:ErrorFile={temporary / 'crash.log'}",
        "-XX:-DumpReplayDataOnError",
        "-XX:-UsePerfData",  # a file in /tmp, which a JVM that is killed would leave
        _shared_archive(),
        "-Xlog:disable",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        # Spark and the libraries in its jars put files there, which a JVM that is killed does not remove.
        f"-Djava.io.tmpdir={temporary}",
        f"-Duser.home={_find_home()}",  # Java would look it up by the user's name
        # Spark's workers inherit CLASSPATH, which is for Hadoop's client in each of them.
        "-cp",
        os.pathsep.join(map(str, jars)),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]


def _find_home() -> str:
    """Return the user's home. A user without one has the root directory, as in Docker."""
    home = os.path.expanduser("~")  # Path.home() raises an error if there is none
    return home if os.path.isabs(home) else "/"


def _shared_archive() -> str:
    archive = locate_class_archive()
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else "-Xshare:auto"


def make_environment(connection_file: Path) -> Mapping[str, str]:
    """Return the environment of the JVM, without secrets. The JVM writes its port to `connection_file`."""
    return {
        **USER,
        **select_inherited(),
        **LOCALE,
        "SPARK_HOME": str(find_spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": make_python_path(),
        # Workers must not import modules of the directory that the process was started in, such as a queue.py.
        "PYTHONSAFEPATH": "1",
        **WORKER_ALLOCATION,
    }


def find_package_root() -> str:
    """Return the directory that has this package."""
    return str(Path(connector.__file__).parent.parent)


def make_python_path() -> str:
    """Return the Python path of a process that imports this package, and what this process can import."""
    return os.pathsep.join(filter(None, [find_package_root(), os.environ.get("PYTHONPATH")]))


def select_inherited() -> dict[str, str]:
    """Return the variables of this process that Spark's processes may have: all but secrets and settings of Spark."""
    return {
        name: value
        for name, value in os.environ.copy().items()
        if name == HADOOP_TOKENS
        or not (
            SECRET_VARIABLES.search(name)
            or OTHER_SPARK.search(name)
            or name in NOT_INHERITED
            or _has_password(name, value)
        )
    }


def _has_password(name: str, value: str) -> bool:
    return bool(PASSWORD.search(value)) and not PROXY.search(name)


def remove_settings_of_other_spark() -> None:
    """Remove the variables of this process by which PySpark would follow the settings of another Spark."""
    for name in filter(OTHER_SPARK.search, [*os.environ]):
        del os.environ[name]
