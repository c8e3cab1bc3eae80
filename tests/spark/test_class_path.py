"""Which of Spark's jars its JVM opens."""

import re

from connector.spark.jvm.class_path import LOCAL, list_jars
from connector.spark.jvm.jvm_command import find_spark_home
from support.repository import REPOSITORY

JARS = find_spark_home() / "jars"
IMAGE = REPOSITORY / "image" / "unused.txt"


def test_tasks_on_this_machine_have_the_jars_that_the_image_keeps() -> None:
    kept = re.findall(r"^!pyspark/jars/(.*)\.jar$", IMAGE.read_text(), re.MULTILINE)

    assert sorted(LOCAL) == sorted(pattern.removesuffix("*") for pattern in kept)


def test_a_cluster_has_all_jars_behind_the_local_ones_so_that_an_archive_of_classes_fits_both() -> None:
    local, all_jars = (list_jars(JARS, is_local=is_local) for is_local in (True, False))

    assert 0 < len(local) < len(all_jars)
    assert all_jars[: len(local)] == local
    assert sorted(all_jars) == sorted(JARS.glob("*.jar"))
