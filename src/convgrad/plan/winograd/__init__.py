"""How results are computed by Winograd: what is transformed at a time, and the plan of the sums of points."""
