"""Benchmarks of the whole connector process. `scripts/bench` runs them."""
