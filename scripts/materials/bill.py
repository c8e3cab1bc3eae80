"""Prints the image's software bill of materials as CycloneDX 1.6 JSON. Run it inside the image."""

import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from materials.component import Component
from materials.jars import jars
from materials.python_packages import python_packages
from materials.system import debian_packages, java_runtime


def components() -> Iterator[Component]:
    yield from sorted(python_packages(), key=lambda package: package.name)
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    yield from jars(Path(spark.origin).with_name("jars"))
    yield java_runtime(Path(os.environ["JAVA_HOME"]))
    yield from debian_packages()


def main() -> None:
    name = "materialize-iceberg"
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version(name)}},
        "components": [component.cyclonedx for component in components()],
    }
    print(json.dumps(bill, indent=1))


if __name__ == "__main__":
    main()
