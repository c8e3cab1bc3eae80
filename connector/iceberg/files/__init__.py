"""Where tables' files are kept, what opens them, and what a store says when it refuses."""
