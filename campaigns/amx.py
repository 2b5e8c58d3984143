"""Which sums the instruction TDPBF16PS of Intel AMX computes: orders, roundings and flushing, compared bit by bit.

``python -m campaigns amx --outputs 10000000`` computes exhaustive and random products of tiles with the instruction,
and with a NumPy model of each order. It prints how many outputs of each kind of data have the same bits. The
exit code is 1 if an output differs from the first order, and 2 if the machine has no AMX.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations

import numpy as np

from campaigns.command import parser_of
from campaigns.tdpbf16ps import (
    BEFORE_ROUNDING,
    F32,
    NEVER,
    ONE,
    SIDE,
    U16,
    added,
    by_halves,
    by_instruction,
    chain,
    terms_of,
    why_no_amx,
)
from convgrad.engines.llvm.tried import EXPONENTS
from convgrad.spec.chains import sum_to_odd

Operands = tuple[U16, U16, F32]
NO_AMX = 2
TILES = 256  # tiles at once: 65,536 outputs
HUGE = 2.0**100  # hides each number near 1 that is added to it
# Ranges of biased exponents: those of the test of VDPBF16PS, products near the denormal f32 numbers, and all numbers.
RANGES = (*EXPONENTS, (50, 76), (62, 65), (0, 255))


def in_pairs(a: U16, b: U16, c: F32) -> F32:
    """Return C + A B, where each pair is summed with one rounding and then added."""
    terms = terms_of(a, b)
    for even, odd in zip(terms[::2], terms[1::2], strict=True):
        with np.errstate(all="ignore"):
            products = [x.astype(np.float64) * y for x, y in (even, odd)]
            c = added(sum_to_odd(*products).astype(np.float32), ONE, c)
    return c


def toward_zero(x: F32, y: F32, z: F32) -> F32:
    """Return x * y + z, rounded toward zero."""
    nearest = added(x, y, z)
    with np.errstate(all="ignore"):
        above = np.abs(nearest) > np.abs(sum_to_odd(x.astype(np.float64) * y, z.astype(np.float64)))
    return np.where(above, np.nextafter(nearest, np.float32(0)), nearest)


def swapped(terms: list[tuple[F32, F32]]) -> list[tuple[F32, F32]]:
    """Return terms with the second of each pair first."""
    return [terms[k ^ 1] for k in range(len(terms))]


def even_from_c(a: U16, b: U16, c: F32) -> F32:
    """Return C + A B, where C begins the even chain."""
    terms = terms_of(a, b)
    return added(chain(terms[::2], c), ONE, chain(terms[1::2], np.zeros_like(c)))


def c_before_odd(a: U16, b: U16, c: F32) -> F32:
    """Return C + A B as (C + the even chain) + the odd chain."""
    terms, zero = terms_of(a, b), np.zeros_like(c)
    return added(added(c, ONE, chain(terms[::2], zero)), ONE, chain(terms[1::2], zero))


ORDERS: dict[str, Callable[[U16, U16, F32], F32]] = {
    "C + (even chain + odd chain)": by_halves,
    "the same, flushed before rounding": partial(by_halves, add=partial(added, tiny=BEFORE_ROUNDING)),
    "the same, denormals kept": partial(by_halves, add=partial(added, tiny=NEVER)),
    "the same, rounded toward zero": partial(by_halves, add=toward_zero),
    "(C + even chain) + odd chain": c_before_odd,
    "even chain from C, + odd chain": even_from_c,
    "one chain from C, first of a pair first": lambda a, b, c: chain(terms_of(a, b), c),
    "one chain from C, second of a pair first": lambda a, b, c: chain(swapped(terms_of(a, b)), c),
    "rounded sums of pairs, added to C": in_pairs,
}


def masks() -> Iterator[Operands]:
    """Yield sums of ones, with HUGE and -HUGE at each two places among C and 32 terms."""
    values = np.ones((33 * 32, 33), np.float32)
    for row, (place, opposite) in zip(values, permutations(range(33), 2), strict=True):
        row[place], row[opposite] = HUGE, -HUGE
    a = (values[:, 1:].view(np.uint32) >> np.uint32(16)).astype(np.uint16).reshape(-1, SIDE, 32)
    c = np.repeat(values[:, :1], SIDE, 1).reshape(-1, SIDE, SIDE)
    yield a, np.full((len(a), 32, SIDE), 0x3F80, np.uint16), c


def numbers() -> Iterator[Operands]:
    """Yield the products of every bf16 number with 16 numbers of all kinds, as first and as second term of a pair."""
    special = [0, 0x8000, 1, 0x807F, 0x80, 0x8080, 0x3F80, 0x3F81, 0xBFFF, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7F81]
    for half in range(2):
        for c in (0, 0x80000000, 0x80000001, 0x00800000, 0xFF800000, 0x7F800001):
            yield every_number(half, 2, [*special, 0xFFC5, 0x2000], c)


def limits() -> Iterator[Operands]:
    """Yield 2**-126, from the first pair, plus products of every bf16 number, from the second pair."""
    for half in range(2):
        a, b, c = every_number(2 + half, 4, [8 * n + 1 << 7 | 5 * n for n in range(SIDE)], 0)
        a[..., half], b[:, half] = 0x2000, 0x2000  # 2**-63
        yield a, b, c


def every_number(place: int, terms: int, others: Sequence[int], c: int) -> Operands:
    """Return products of every bf16 number and ``others`` at one place among ``terms``; all other terms are 0."""
    tiles = (1 << 16) // SIDE
    a, b = np.zeros((tiles, SIDE, terms), np.uint16), np.zeros((tiles, terms, SIDE), np.uint16)
    a[..., place], b[:, place] = np.arange(1 << 16, dtype=np.uint16).reshape(tiles, SIDE), others
    return a, b, np.full((tiles, SIDE, SIDE), c, np.uint32).view(np.float32)


def normal(rng: np.random.Generator) -> Iterator[Operands]:
    """Yield normal random numbers."""
    while True:
        pairs = rng.integers(1, SIDE + 1)
        drawn = (
            rng.normal(size=(TILES, *shape)).astype(np.float32) for shape in ((SIDE, 2 * pairs), (2 * pairs, SIDE))
        )
        a, b = ((each.view(np.uint32) >> np.uint32(16)).astype(np.uint16) for each in drawn)
        yield a, b, rng.normal(size=(TILES, SIDE, SIDE)).astype(np.float32)


def exponents(rng: np.random.Generator, cancel: bool = False) -> Iterator[Operands]:
    """Yield random bits, with exponents of each range, for 1 to 16 pairs; with ``cancel``, the sums of products cancel.

    C has the exponents of the products. The range of all exponents includes denormals, infinities and NaN.
    """
    while True:
        for low, high in RANGES:
            pairs = rng.integers(1, SIDE + 1)
            a, b = (_bits(rng, (TILES, *shape), low, high) for shape in ((SIDE, 2 * pairs), (2 * pairs, SIDE)))
            if cancel:
                given = rng.permutation(2 * pairs)
                first, second = given[:pairs], given[pairs:]
                a[..., first], b[:, first] = a[..., second], b[:, second] ^ np.uint16(0x8000)
                a[..., first[:2]] ^= rng.integers(0, 4, a[..., first[:2]].shape).astype(np.uint16)
            c = _bits(rng, (TILES, SIDE, SIDE), *(max(0, min(255, 2 * each - 127)) for each in (low, high)))
            tail = rng.integers(0, 1 << 16, c.shape).astype(np.uint32)
            yield a, b, (c.astype(np.uint32) << np.uint32(16) | tail).view(np.float32)


def _bits(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> U16:
    """Return random bf16 numbers with biased exponents from ``low`` to ``high``."""
    return (rng.integers(low, high + 1, shape) << 7 | rng.integers(0, 1 << 16, shape) & 0x807F).astype(np.uint16)


def same(order: Callable[[U16, U16, F32], F32], operands: Operands, found: F32) -> int:
    """Return how many outputs of an order have the bits of those ``found``, including the bits of NaN."""
    return int((order(*operands).view(np.uint32) == found.view(np.uint32)).sum())


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the orders, and print a table."""
    parser = parser_of("amx", "Compare TDPBF16PS with models of its sums, bit by bit.", outputs=1_000_000, seed=0)
    options, reason = parser.parse_args(arguments), why_no_amx()
    if reason:
        print(f"TDPBF16PS cannot run here: {reason}")
        return NO_AMX
    rng, started = np.random.default_rng([115, options.seed]), time.monotonic()
    kinds = {
        "masks": masks(), "numbers": numbers(), "limits": limits(), "normal": normal(rng),
        "exponents": exponents(rng), "cancelling": exponents(rng, cancel=True),
    }  # fmt: skip
    totals, counts = Counter[str](), {name: Counter[str]() for name in ORDERS}
    for kind, drawn in kinds.items():
        for operands in drawn:
            found = by_instruction(*operands)
            totals[kind] += found.size
            for name, order in ORDERS.items():
                counts[name][kind] += same(order, operands, found)
            if totals[kind] >= options.outputs:
                break
    print(f"{'same bits of':42}" + "".join(f"{kind:>12}" for kind in kinds))
    for name, counted in {"outputs": totals, **counts}.items():
        print(f"{name:42}" + "".join(f"{counted[kind]:12}" for kind in kinds))
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s")
    return int(counts[next(iter(ORDERS))] != totals)
