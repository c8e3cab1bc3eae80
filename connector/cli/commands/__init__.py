"""One module for each command, and the two parts of `demo` that speak to the connector."""
