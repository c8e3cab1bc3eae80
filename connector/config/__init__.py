"""The settings that users can make: their definitions, the check of a config, and its parsing."""
