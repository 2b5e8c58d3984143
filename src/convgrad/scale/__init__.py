"""Larger than memory: operators on arrays that slice, computed piece by piece to the bits of one call."""

from convgrad.scale.plan import Plan
from convgrad.scale.progress import Progress
from convgrad.scale.run import plan, run

__all__ = ["Plan", "Progress", "plan", "run"]
