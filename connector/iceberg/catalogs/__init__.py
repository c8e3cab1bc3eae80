"""Every kind of catalog, and how one is opened."""
