"""One module for each request that begins a conversation: spec, validate, apply, open."""
