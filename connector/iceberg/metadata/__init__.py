"""Tables' metadata, read and written: manifests, updates, references, retention."""
