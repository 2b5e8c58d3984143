"""How good an answer is: exact results, and verdicts on any implementation's result against the proved bound."""

from convgrad.verify.compare import Verdict
from convgrad.verify.exact import check, exact

__all__ = ["Verdict", "check", "exact"]
