"""Declared arithmetic of a result: the format of its sums, their order, and the algorithm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from convgrad.errors import InvalidAttributeError
from convgrad.formats import ACCUMULATIONS, F64, Format
from convgrad.spec.check import as_integer

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
        found = _WINOGRAD.fullmatch(self.algorithm)
        return (int(found[1]), int(found[2])) if found else None


def declared(
    operator: str,
    operands: Format,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
) -> Declared:
    """Return the declared arithmetic; raise InvalidAttributeError for an invalid argument.

    The default of ``accumulation`` is the operands' accumulator format.
    """
    fmt = operands.accumulator if accumulation is None else ACCUMULATIONS.get(str(accumulation))
    if fmt is None:
        wanted = f"accumulation must be one of {', '.join(ACCUMULATIONS)}"
        raise InvalidAttributeError(f"{operator}: {wanted}; got {accumulation!r:.200}")
    _check_algorithm(operator, algorithm)
    if isinstance(height, Sequence) and not isinstance(height, str) and height:
        blocks = tuple(as_integer(block) or 0 for block in height)
        if not 1 <= min(blocks) <= max(blocks) <= MAX_ROUNDINGS:
            wanted = f"the blocks of an order must be positive integers, {MAX_ROUNDINGS} at most"
            raise InvalidAttributeError(f"{operator}: {wanted}; got {height!r:.200}")
        return Declared(fmt, None, blocks, algorithm)
    if height is None:
        return Declared(fmt, None, (), algorithm)
    number = as_integer(height)
    if number is None or number < 0:
        wanted = "a non-negative integer, the most roundings a term of a sum went through, or the blocks of its order"
        raise InvalidAttributeError(f"{operator}: height must be {wanted}; got {height!r:.200}")
    return Declared(fmt, min(number, MAX_ROUNDINGS), (), algorithm)


def _check_algorithm(operator: str, algorithm: str) -> None:
    filtering = Declared(F64, algorithm=str(algorithm)).filtering
    if algorithm in (SUM, FFT) or (filtering and sum(filtering) - 1 <= _MAX_POINTS):
        return
    wanted = f'"{SUM}", "{FFT}" or "winograd:M,R", M outputs of R taps from at most {_MAX_POINTS} products'
    raise InvalidAttributeError(f"{operator}: algorithm must be {wanted}; got {algorithm!r:.200}")
