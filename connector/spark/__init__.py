"""The data plane: Spark tasks that turn spooled Store lines into data files. The only package that imports pyspark."""
