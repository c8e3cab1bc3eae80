"""How blocks of rows, and tables of keys, get from the driver to Spark's tasks, and who has which block."""
