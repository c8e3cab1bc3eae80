"""The jars that Spark's JVM looks for classes in."""

import os
from pathlib import Path
from typing import Final

# The beginnings of the names of the jars that run tasks on this machine; the container image has no others
# (image/unused.txt). A JVM keeps the directory of every jar on its class path in its heap, and Spark has 287 jars with
# 150,000 entries.
LOCAL: Final = (
    "spark-core_",
    "spark-common-utils",
    "spark-kvstore_",
    "spark-launcher_",
    "spark-network-",
    "spark-tags_",
    "spark-unsafe_",
    "spark-variant_",
    "ivy-",
    "oro-",
    "scala-library-",
    "scala-parallel-collections_",
    "scala-reflect-",
    "scala-xml_",
    "py4j-",
    "pickle-",
    "hadoop-client-",
    "jcl-over-slf4j-",
    "jul-to-slf4j-",
    "log4j-",
    "slf4j-api-",
    "RoaringBitmap-",
    "avro-",
    "chill",
    "commons-crypto-",
    "compress-lzf-",
    "kryo-shaded-",
    "leveldbjni-all-",
    "lz4-java-",
    "minlog-",
    "netty-",
    "objenesis-",
    "snappy-java-",
    "stream-",
    "xbean-asm9-shaded-",
    "zstd-jni-",
    "jackson-",
    "json4s-",
    "paranamer-",
    "snakeyaml-",
    "aopalliance-repackaged-",
    "hk2-",
    "jakarta.",
    "javassist-",
    "javax.servlet-api-",
    "jersey-",
    "metrics-",
    "osgi-resource-locator-",
    "commons-codec-",
    "commons-collections4-",
    "commons-io-",
    "commons-lang3-",
    "commons-math3-",
    "commons-text-",
    "failureaccess-",
    "guava-",
    "jsr305-",
)


def list_jars(jars: Path, *, is_local: bool) -> list[Path]:
    """Return the jars to load, always in the same order: a class archive fits one class path, and longer class paths
    that begin with it."""
    every = sorted(name for name in os.listdir(jars) if name.endswith(".jar"))  # quicker than to sort paths
    local = [name for name in every if name.startswith(LOCAL)]
    names = local if is_local else [*local, *(name for name in every if not name.startswith(LOCAL))]
    return [jars / name for name in names]
