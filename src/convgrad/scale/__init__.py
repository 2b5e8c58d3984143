"""Operators on arrays larger than memory, computed piece by piece, with the bits of one call."""

from convgrad.scale.plan import Plan
from convgrad.scale.progress import Progress
from convgrad.scale.run import plan, run

__all__ = ["Plan", "Progress", "plan", "run"]
