"""bf16 pairs: two k per multiply-add, and the condition for the same bits as with two fused multiply-adds.

The instruction flushes denormal operands and results to zero. Let ex and ey be the minimum exponents of the
nonzero values of both operands. Products and sums of products are multiples of 2**(ex + ey - 14). If
ex + ey is large enough, no result is denormal. Then the instruction equals two fused multiply-adds, high half first.
"""

from __future__ import annotations

import numpy as np

from convgrad.formats import BF16, F32
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.tables import Table
from convgrad.spec.problem import Problem

# The smallest allowed ex + ey, in biased exponents: 2**(ex + ey - 14) is then 2**-126 or more.
# With a smaller sum of exponents, a sum of two products can be denormal.
MIN_EXPONENT_SUM = 2 * F32.max_exponent + 2 * (BF16.significand_bits - 1) + F32.min_exponent
WHERE_PAIRS = f"if the data permits: the minimum exponents of the panels of A and B sum to {MIN_EXPONENT_SUM} or more"
PAIR_BYTES = 4
PATHS = ("pairs", "single")  # counters of panels multiplied in pairs, and of panels multiplied by single k


def k_per_add_choices(problem: Problem, isa: Isa) -> tuple[int, ...]:
    """Return the possible numbers of k per multiply-add: 1, and 2 if the instruction set has bf16 pairs."""
    return (1, 2) if isa.pairs and problem.operand_format is BF16 else (1,)


def order_of_k(count: int, swapped: bool) -> list[int]:
    """Return the k of a tap in order; the two k of each pair may be swapped, but not an odd last one.

    >>> order_of_k(5, True)
    [1, 0, 3, 2, 4]
    """
    return [k ^ 1 if swapped and k ^ 1 < count else k for k in range(count)]


def chain_adds(count: int, k_per_add: int, machine: Machine) -> float:
    """Return the time of a chain of ``count`` k, in multiply-adds of single k. An odd last k is not part of a pair.

    >>> from convgrad.plan.machine import ISAS
    >>> [chain_adds(7, k_per_add, Machine(ISAS["avx512bf16"])) for k_per_add in (1, 2)]
    [7.0, 4.0]
    """
    return count // k_per_add * (machine.pair_adds if k_per_add == 2 else 1.0) + count % k_per_add


def add_condition(tables: dict[str, Table], numbers: dict[str, int]) -> None:
    """Add the smallest allowed exponent sum and the counters ``PATHS`` to the tables and numbers of a schedule."""
    tables["paths"], numbers["min_sum"] = np.zeros(len(PATHS), np.int64), MIN_EXPONENT_SUM
