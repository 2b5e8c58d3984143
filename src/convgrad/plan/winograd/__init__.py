"""How results are computed by Toom-Cook: what is made of points at a time, and the plan of their sums."""
