"""Flow's materialization protocol in JSON: its messages, their order, stdin and stdout. It knows no lakehouse."""
