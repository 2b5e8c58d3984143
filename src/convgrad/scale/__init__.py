"""Operators on arrays larger than memory, computed piece by piece. The result has the bits of a single call."""

from convgrad.scale.plan import Plan
from convgrad.scale.progress import Progress
from convgrad.scale.run import plan, run

__all__ = ["Plan", "Progress", "plan", "run"]
