"""kn2row in IR."""
