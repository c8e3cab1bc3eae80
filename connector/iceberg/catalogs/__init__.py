"""All kinds of catalogs: how they are opened, and what their errors mean."""
