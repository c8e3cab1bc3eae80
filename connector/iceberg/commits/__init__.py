"""The fence, the commits that respect it, and what they are made of."""
