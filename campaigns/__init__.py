"""Campaigns: random problems, as many as are asked for, against what must hold of each."""
