"""The machine and the process: errors, logs, signals, limits, threads, temporary directories; and groups of things."""
