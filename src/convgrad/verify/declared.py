"""Declared arithmetic of a result: the format of its sums, their order, and the algorithm."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from convgrad.array_types import Array
from convgrad.errors import InvalidAttributeError
from convgrad.formats import ACCUMULATIONS, F64, Format
from convgrad.spec.check import as_integer
from convgrad.spec.exact_result import max_terms
from convgrad.spec.geometry import Conv
from convgrad.spec.order import last_additions, order_of
from convgrad.spec.problem import Problem

SUM = "sum"  # products added in the declared order, with or without FMA
FFT = "fft"  # its errors have no known bound
MAX_ROUNDINGS = 2**F64.significand_bits  # no format has an error bound for more roundings
_WINOGRAD = re.compile(r"winograd:([1-9]\d*),([1-9]\d*)")
_MAX_POINTS = 16  # Winograd tiles with more points have useless bounds and large matrix entries


@dataclass(frozen=True)
class Declared:
    """The arithmetic by which a result is judged.

    ``height`` is the rounding depth, including the last additions of bias and old value. ``blocks`` are the lengths of
    the accumulation chains of a revealed order, whose sums are added in sequence. If neither is given, any order is
    allowed.
    """

    accumulation: Format
    height: int | None = None
    blocks: tuple[int, ...] = ()
    algorithm: str = SUM

    @property
    def filtering(self) -> tuple[int, int] | None:
        """M and R of Winograd's F(M, R), M outputs of R taps along each axis; None for other algorithms."""
        match = _WINOGRAD.fullmatch(self.algorithm)
        return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, eq=False)
class DeclaredResult:
    """A canonical result of a problem, its operands, its declared arithmetic, and its contents before the call."""

    got: Array
    problem: Problem
    operands: Sequence[Array]
    declared: Declared
    old: Array | None = None


def declared(
    name: str,
    operands: Format,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
) -> Declared:
    """Return the declared arithmetic; raise InvalidAttributeError for an invalid argument.

    ``name`` begins the text of the error. The default of ``accumulation`` is the operands' accumulator format.
    """
    fmt = operands.accumulator if accumulation is None else ACCUMULATIONS.get(str(accumulation))
    if fmt is None:
        wanted = f"accumulation must be one of {', '.join(ACCUMULATIONS)}"
        raise InvalidAttributeError(f"{name}: {wanted}; got {accumulation!r:.200}")
    _check_algorithm(name, algorithm)
    if isinstance(height, Sequence) and not isinstance(height, str) and height:
        blocks = tuple(as_integer(block) or 0 for block in height)
        if not 1 <= min(blocks) <= max(blocks) <= MAX_ROUNDINGS:
            wanted = f"the blocks of an order must be positive integers, {MAX_ROUNDINGS} at most"
            raise InvalidAttributeError(f"{name}: {wanted}; got {height!r:.200}")
        return Declared(fmt, None, blocks, algorithm)
    if height is None:
        return Declared(fmt, None, (), algorithm)
    number = as_integer(height)
    if number is None or number < 0:
        wanted = "a non-negative integer, the most roundings a term of a sum went through, or the blocks of its order"
        raise InvalidAttributeError(f"{name}: height must be {wanted}; got {height!r:.200}")
    return Declared(fmt, min(number, MAX_ROUNDINGS), (), algorithm)


def declared_for(
    problem: Problem,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
    shared: bool = False,
) -> Declared:
    """Return the declared arithmetic of a problem's result; raise InvalidAttributeError if no such sum exists.

    A ``shared`` height is declared for several problems at once, and may exceed the largest depth of this one.
    """
    how = declared(problem.operator, problem.operand_format, accumulation, height, algorithm)
    if how.algorithm != SUM or problem.algorithm:  # their bounds do not depend on the height
        return how
    if how.blocks:
        _check_blocks(problem, how.blocks)
    elif isinstance(height, SupportsIndex):
        _check_height(problem, how.accumulation, operator.index(height), shared)
    return how


def min_height(problem: Problem, accumulation: Format) -> int:
    """Return the smallest rounding depth of a sum with all terms of the problem's longest sum.

    The best order is a balanced tree of additions. The rounding of a product counts, unless all products of two
    operands are exact in the format of sums. A fused multiply-add rounds a product and its addition at once, so that
    the first product and a bias pass through one rounding together.
    """
    terms, others = max_terms(problem), last_additions(problem)
    exact = 2 * problem.operand_format.significand_bits <= accumulation.significand_bits
    if exact or not isinstance(problem.geometry, Conv):  # without weights there are no products
        return max(terms + others - 1, 0).bit_length()
    return max((terms - 1).bit_length() + 1, others) if terms else max(others - 1, 0)


def _check_height(problem: Problem, accumulation: Format, height: int, shared: bool) -> None:
    minimum, maximum = min_height(problem, accumulation), order_of(problem).terms + last_additions(problem)
    if minimum <= height <= maximum or (shared and height > maximum):
        return
    terms = _sum_of(problem)
    if height > maximum:
        wanted = f"height must be at most {maximum}, because no order of {terms} rounds a term more often"
        hint = "Omit height for any order"
    else:
        wanted = f"height must be at least {minimum}, because no order of {terms} has a smaller rounding depth"
        hint = "Omit height for any order, or declare accumulation f64 if sums are kept in more bits"
    raise InvalidAttributeError(f"{problem.operator}: {wanted}; got {height}. {hint}")


def _check_blocks(problem: Problem, blocks: tuple[int, ...]) -> None:
    terms, with_padding = max_terms(problem), order_of(problem).terms
    if terms <= sum(blocks) <= with_padding:
        return
    count = str(terms) if terms == with_padding else f"{terms} to {with_padding}"
    wanted = f"the blocks of an order must have {count} terms together, as {_sum_of(problem)} has"
    hint = "Pass the sizes of all blocks, or their rounding depth as one number"
    blocks_words = f"{sum(blocks)} in {len(blocks)} blocks"
    raise InvalidAttributeError(f"{problem.operator}: {wanted}; got {blocks_words}. {hint}")


def _sum_of(problem: Problem) -> str:
    terms, last = max_terms(problem), last_additions(problem)
    added = (
        " with bias and old value" if last > 1 else " with bias" if "bias" in problem.operands else " with old value"
    )
    return f"a sum of {terms} term{'s' * (terms != 1)}{added * (last > 0)}"


def _check_algorithm(name: str, algorithm: str) -> None:
    filtering = Declared(F64, algorithm=str(algorithm)).filtering
    if algorithm in (SUM, FFT) or (filtering and sum(filtering) - 1 <= _MAX_POINTS):
        return
    wanted = f'"{SUM}", "{FFT}" or "winograd:M,R", M outputs of R taps from at most {_MAX_POINTS} products'
    raise InvalidAttributeError(f"{name}: algorithm must be {wanted}; got {algorithm!r:.200}")
