"""Every kind of catalog, how it is opened, and what its errors mean."""
