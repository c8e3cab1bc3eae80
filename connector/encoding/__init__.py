"""Encodes Store lines as Arrow columns and Parquet files, and converts files that were written before."""
