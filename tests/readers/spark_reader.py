"""Reads tables of an embedded catalog with Spark and Iceberg's own runtime: queries in as JSON, rows out as JSON.

A process of its own: one Python process has one Spark JVM, and the connector's is another.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

INSTANT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"  # toJSON() would cut the microseconds off


def main(jars: Path, warehouse: Path) -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # the JVM prints to its standard output
    settings = {
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        "spark.sql.catalog.local.warehouse": str(warehouse),
        "spark.sql.catalog.local.jdbc.schema-version": "V1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    row = to_json(struct("*"), {"timestampFormat": INSTANT, "ignoreNullFields": "false"})
    rows = [[text for (text,) in session.sql(query).select(row).collect()] for query in json.load(sys.stdin)]
    session.stop()
    with os.fdopen(answers, "w") as output:
        json.dump(rows, output)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
