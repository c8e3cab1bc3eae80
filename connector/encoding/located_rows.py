"""Located rows: the rows of earlier versions that a commit deletes, with their keys, as a staged object.

The object has keys, not only positions. Another engine may move a row to another file before the commit, and then only
its key finds it again. See docs/decisions/0029-rows-are-deleted-by-position.md.
"""
