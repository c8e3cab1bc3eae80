"""From open to the end of input: recovery, transactions, commits and what waits for them."""
