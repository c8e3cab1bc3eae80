"""A session, from open to the end of the input: recovery, transactions, commits, and the backlog of pending commits."""
