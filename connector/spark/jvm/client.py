"""PySpark and Py4J, which speak to the JVM: everything that the driver uses of them.

The driver imports them only here, so they are imported as a whole. Their modules import each other: if two threads
imported different ones at the same time, a thread could get a module that is not complete.
"""

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

__all__ = [
    "RDD",
    "ClientServer",
    "Py4JError",
    "Py4JJavaError",
    "PySparkException",
    "SparkConf",
    "SparkContext",
    "UTF8Deserializer",
    "launch_gateway",
    "read_int",
]
