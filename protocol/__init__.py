"""The wire and its rules: Flow's materialization protocol in its JSON codec. Knows no lakehouse."""
