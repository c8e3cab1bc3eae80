"""The fence, and the commits that respect it."""
