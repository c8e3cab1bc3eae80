"""The rows of data files that no delete file deletes, and the delete files themselves."""
