"""What a caller declares of the arithmetic behind a result: the format its sums are kept in, and their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from convgrad.errors import InvalidAttributeError
from convgrad.formats import ACCUMULATIONS, F64, Format
from convgrad.spec.check import as_integer

SUM = "sum"  # of products, one by one or fused, in the declared order
FFT = "fft"  # no bound is known of it
MOST_ROUNDINGS = 2**F64.significand_bits  # no bound holds beyond, in any format
_WINOGRAD = re.compile(r"winograd:([1-9]\d*),([1-9]\d*)")
_MOST_POINTS = 16  # of minimal filtering: beyond, its bound is no use, and its matrices are no longer of moderate size


@dataclass(frozen=True)
class Declared:
    """The arithmetic that a result is judged by.

    ``height`` is the most roundings a term goes through, the last additions of bias and old value counted; ``blocks``
    are the sizes of the chains of a revealed order, which are joined one after the other. Neither: any order.
    """

    accumulation: Format
    height: int | None = None
    blocks: tuple[int, ...] = ()
    algorithm: str = SUM

    @property
    def filtering(self) -> tuple[int, int] | None:
        """M and R of Winograd's F(M, R), M outputs of R taps along each axis, if that is the algorithm."""
        found = _WINOGRAD.fullmatch(self.algorithm)
        return (int(found[1]), int(found[2])) if found else None


def declared(
    operator: str,
    operands: Format,
    accumulation: str | Format | None = None,
    height: int | Sequence[int] | None = None,
    algorithm: str = SUM,
) -> Declared:
    """Return what is declared, or refuse it: by default sums in the format that the operands' document names."""
    fmt = operands.accumulator if accumulation is None else ACCUMULATIONS.get(str(accumulation))
    if fmt is None:
        wanted = f"accumulation must be one of {', '.join(ACCUMULATIONS)}"
        raise InvalidAttributeError(f"{operator}: {wanted}; got {accumulation!r:.200}")
    _check_algorithm(operator, algorithm)
    if isinstance(height, Sequence) and not isinstance(height, str) and height:
        blocks = tuple(as_integer(block) or 0 for block in height)
        if not 1 <= min(blocks) <= max(blocks) <= MOST_ROUNDINGS:
            wanted = f"the blocks of an order must be positive integers, {MOST_ROUNDINGS} at most"
            raise InvalidAttributeError(f"{operator}: {wanted}; got {height!r:.200}")
        return Declared(fmt, None, blocks, algorithm)
    if height is None:
        return Declared(fmt, None, (), algorithm)
    number = as_integer(height)
    if number is None or number < 0:
        wanted = "a non-negative integer, the most roundings a term of a sum went through, or the blocks of its order"
        raise InvalidAttributeError(f"{operator}: height must be {wanted}; got {height!r:.200}")
    return Declared(fmt, min(number, MOST_ROUNDINGS), (), algorithm)


def _check_algorithm(operator: str, algorithm: str) -> None:
    filtering = Declared(F64, algorithm=str(algorithm)).filtering
    if algorithm in (SUM, FFT) or (filtering and sum(filtering) - 1 <= _MOST_POINTS):
        return
    wanted = f'"{SUM}", "{FFT}" or "winograd:M,R", M outputs of R taps from at most {_MOST_POINTS} products'
    raise InvalidAttributeError(f"{operator}: algorithm must be {wanted}; got {algorithm!r:.200}")
