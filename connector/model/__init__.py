"""Values that the layers hand to each other."""
