"""Verification: exact results, and verdicts on results of any implementation."""

from convgrad.verify.check import check
from convgrad.verify.exact import exact
from convgrad.verify.verdict import Defect, Evidence, Verdict

__all__ = ["Defect", "Evidence", "Verdict", "check", "exact"]
