"""What a caller declares of the arithmetic behind a result: the format its sums are kept in, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convgrad.errors import InvalidAttributeError
from convgrad.formats import ACCUMULATIONS, F64, Format
from convgrad.spec.check import as_integer

SUM = "sum"  # of products, one by one or fused, in the declared order


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
        raise InvalidAttributeError(f"{operator}: {wanted}; got {accumulation!r}")
    if isinstance(height, Sequence) and not isinstance(height, str) and height:
        blocks = tuple(as_integer(block) or 0 for block in height)
        if min(blocks) < 1:
            raise InvalidAttributeError(f"{operator}: the blocks of an order are positive integers; got {height!r}")
        return Declared(fmt, None, blocks, algorithm)
    if height is None:
        return Declared(fmt, None, (), algorithm)
    number = as_integer(height)
    if number is None or number < 0:
        wanted = "a non-negative integer, the most roundings a term of a sum went through, or the blocks of its order"
        raise InvalidAttributeError(f"{operator}: height must be {wanted}; got {height!r}")
    return Declared(fmt, min(number, 2**F64.significand_bits), (), algorithm)  # no bound holds beyond, in any format
