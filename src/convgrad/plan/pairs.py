"""Pairs of bf16 terms in one multiply-add: when it has the bits of two fused ones, and for which kernels there is one.

The instruction takes denormals for zeros, and makes zeros of denormal results. A product of bf16 and every sum of such
are multiples of 2**(ex + ey - 14), of the least exponents of what is not zero in both operands: unless those are too
small, nothing can be denormal, and the instruction is two fused multiply-adds, each rounded, the high half first.
"""

from __future__ import annotations

from convgrad.formats import BF16, F32
from convgrad.plan.machine import Isa, Machine
from convgrad.spec.problem import Problem

# 2**(ex + ey - 14) is 2**-126 or more: in biased exponents, where neither operand is denormal itself. One less, and
# a sum of two terms can be denormal.
MIN_EXPONENT_SUM = 2 * F32.max_exponent + 2 * (BF16.significand_bits - 1) + F32.min_exponent
WHERE_PAIRS = f"where the data lets it: least exponents of both operands' panels sum to {MIN_EXPONENT_SUM} or more"
PAIR_BYTES = 4  # of two terms
PATHS = ("pairs", "single")  # counted, by panels: how multiply-adds took the terms of what met the condition, and not


def steps(problem: Problem, isa: Isa) -> tuple[int, ...]:
    """Return how many terms a multiply-add may take."""
    return (1, 2) if isa.pairs and problem.operand_format is BF16 else (1,)


def chain_adds(terms: int, step: int, machine: Machine) -> float:
    """Return the time of some K in multiply-adds of single K: pairs, and an odd last K alone.

    >>> from convgrad.plan.machine import ISAS
    >>> [chain_adds(7, step, Machine(ISAS["avx512bf16"])) for step in (1, 2)]
    [7.0, 4.0]
    """
    return terms // step * (machine.pair_adds if step == 2 else 1.0) + terms % step
