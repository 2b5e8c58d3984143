"""The readers of cases: the public names of ``convgrad.verify.cases``."""

from convgrad.verify.cases import DIALECTS, Array, Arrays, Case, Dialect, NoCaseError, PassedOverError, read

__all__ = ["DIALECTS", "Array", "Arrays", "Case", "Dialect", "NoCaseError", "PassedOverError", "read"]
