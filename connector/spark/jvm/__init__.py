"""Spark's JVM and the Spark session: how both are started, where tasks run, and what their errors mean."""
