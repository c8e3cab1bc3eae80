"""Metrics for Prometheus: facts become numbers, which are served by HTTP or written to a file."""
