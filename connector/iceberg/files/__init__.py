"""The stores for tables' files: addresses, keys, clients, probes, and what a store's errors mean."""
