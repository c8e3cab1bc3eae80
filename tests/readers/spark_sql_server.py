"""Reads tables with Spark and Iceberg's own runtime: lines of a session's name and queries in, lines of rows out, all
of it JSON.

A process of its own: one Python process has one Spark JVM, and the connector's is another.
"""

import json
import os
import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

INSTANT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"  # toJSON() would cut the microseconds off
SETTINGS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def main(settings: dict[str, str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM prints to its standard output
    builder = SparkSession.builder.master("local[1]")
    for name, value in (SETTINGS | settings).items():
        builder = builder.config(name, value)
    first = builder.getOrCreate()
    sessions = {"": first}
    for line in sys.stdin:
        name, queries = json.loads(line)
        if name not in sessions:
            sessions[name] = first.newSession()
        print(json.dumps(answer(sessions[name], queries)), file=answers, flush=True)
    first.stop()


def answer(session: SparkSession, queries: list[str]) -> Any:
    """The rows of each query; or what the engine says of the first that it cannot answer."""
    row = to_json(struct("*"), {"timestampFormat": INSTANT, "ignoreNullFields": "false"})
    try:
        return [[text for (text,) in session.sql(query).select(row).collect()] for query in queries]
    except (PySparkException, Py4JError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
