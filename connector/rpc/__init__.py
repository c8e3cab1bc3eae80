"""One module for each request that the runtime sends once: spec, validate, apply, open."""
