"""The certified reference against rational arithmetic, and sums in any order against the bound.

``python -m campaigns certified references --problems 10000`` compares the reference of random problems, of all roles
and types, on data that is hard to round, with the sums of fractions rounded to f32, bf16 and f16, bit for bit.
``python -m campaigns certified orders --sums 1000000`` adds random terms in random orders, products rounded or fused,
in every accumulation format, and holds each against the bound. What is wrong is printed; the exit code is then 1.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import copysign, inf, ldexp
from operator import mul

import numpy as np

from campaigns.command import parser_of
from convgrad.formats import ACCUMULATIONS, BF16, F16, F32, F64, Format, round_to
from convgrad.functional.call import prepare
from convgrad.spec.bound import error_bound, output_bound
from convgrad.spec.problem import canonical_shape
from convgrad.verify.reference import certify
from convgrad.verify.sums import two_sum
from convgrad.verify.terms import Terms, terms_of
from tests.support.helpers import Case, random_case

Array = np.ndarray
NARROW = (F32, BF16, F16)
ELEMENTS = 300  # of a problem that are added as fractions, at most


# -- data that is hard to round -------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    return rng.standard_normal(shape)


def cancelling(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    """Numbers of few sizes and both signs, so that most of a sum cancels, or all of it."""
    sizes = np.array([1.0, 1.0 + 4 * fmt.unit, 3.0, 2.0**-9])
    return rng.choice(sizes, shape) * rng.choice([-1.0, 1.0], shape)


def subnormal(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    """Subnormal numbers of the format and numbers about its square root, so that products underflow."""
    return rng.standard_normal(shape) * rng.choice([fmt.tiny * 5, np.sqrt(fmt.tiny), 1.0], shape)


def scaled(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    """Numbers of sizes that differ by more than float64 holds, where the format has them."""
    reach = min(50, fmt.max_exponent // 2 - 1)
    return np.ldexp(rng.standard_normal(shape), rng.integers(-reach, reach + 1, shape))


def ties(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    """Powers of two, so that sums have few bits, far apart: many lie midway between two numbers of a format."""
    return np.ldexp(rng.choice([-1.0, 0.0, 1.0, 1.5], shape), rng.integers(-12, 8, shape))


def large(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Array:
    """Numbers whose products are about the largest of f32 or f16."""
    return rng.standard_normal(shape) * 2.0 ** (fmt.max_exponent // 2)


DATA: Mapping[str, Callable[[np.random.Generator, tuple[int, ...], Format], Array]] = {
    f.__name__: f for f in (normal, cancelling, subnormal, scaled, ties, large)
}


# -- references -----------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was compared, and what of it is wrong."""

    compared: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    largest: float = 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {n}" for name, n in sorted(self.kinds.items()))
        largest = f", largest error {self.largest:.9f} of its bound" if self.largest else ""
        return f"{self.compared} compared, {len(self.wrong)} wrong{largest}; {kinds}"


def rational(terms: Terms) -> int:
    """Return the sum of the terms, of f32, bf16 or f16, as a number of 2^-298: a fraction with that denominator."""
    x, y, added = (integers(values) for values in (terms.x, terms.y, np.array(terms.added)))
    return sum(map(mul, x, y)) + (sum(added) << 149)


def integers(values: Array) -> list[int]:
    return list(map(int, np.ldexp(values.ravel(), 149).tolist()))


def rounded(sum_: int, fmt: Format) -> float:
    """Return a number of 2^-298 rounded to a format, ties to even, by integers alone."""
    exponent = abs(sum_).bit_length() - 299
    last = max(exponent, fmt.min_exponent) - fmt.significand_bits + 1
    places, rest = divmod(abs(sum_), 1 << (last + 298))
    half = 1 << (last + 297)
    value = ldexp(places + (rest > half or (rest == half and places % 2)), last)
    return copysign(value if value <= fmt.largest else inf, sum_)


def narrow_case(rng: np.random.Generator) -> Case:
    """Return a random call of any operator on f32, bf16 or f16 that has a result."""
    case = random_case(rng)
    return replace(case, format=NARROW[rng.integers(3)])


def made_up(rng: np.random.Generator, case: Case, kind: str) -> Iterator[object]:
    fmt = case.format
    for port, shape in zip(case.op.operands, case.shapes, strict=False):
        values = np.clip(DATA[kind](rng, shape, fmt), -fmt.largest, fmt.largest)
        yield np.array(shape, np.int32) if port.is_shape else values.astype(fmt.dtype)


def check_reference(rng: np.random.Generator, kind: str, tally: Tally) -> None:
    """Compare the reference of a random problem with the sums of fractions, element by element."""
    case = narrow_case(rng)
    prepared = prepare(case.op.name, tuple(made_up(rng, case, kind)), case.attributes, case.dtype, rng.random() < 0.3)
    problem, operands, old = prepared.problem, prepared.operands, None
    if problem.accumulate:
        shape = canonical_shape(problem.geometry, problem.output)
        old = DATA[kind](rng, shape, F16).astype(problem.output_format.dtype)
    found = certify(problem, operands, old)
    in_formats = [(fmt, found.rounded(fmt)) for fmt in NARROW]
    tally.kinds[problem.solves_for] += 1
    some = rng.permutation(found.value.size)[:ELEMENTS]
    for index in zip(*(axis.tolist() for axis in np.unravel_index(some, found.value.shape)), strict=True):
        terms = terms_of(problem, operands, index, old)
        exact, size = rational(terms), rational(absolute(terms))
        value, error, magnitude = (int(ldexp(a[index], 298)) for a in (found.value, found.error, found.magnitude))
        right = abs(exact - value) <= error and size <= magnitude <= size + (size >> 30)
        right &= int(found.nonzero[index]) == np.count_nonzero(terms.products)
        for fmt, array in in_formats:
            expected, got = rounded(exact, fmt), float(array[index])
            right &= expected == got and copysign(1, expected) == copysign(1, got)
        tally.compared += 1
        if not right:
            tally.wrong.append(f"{kind}: {case}: {index}: {exact} 2^-298, got {found.value[index]!r}")


def absolute(terms: Terms) -> Terms:
    return Terms(np.abs(terms.x), np.abs(terms.y), tuple(map(abs, terms.added)))


# -- orders ---------------------------------------------------------------------------------------------------------


def add(a: Array, b: Array, fmt: Format) -> Array:
    """Return a + b rounded once to a format: to odd in float64, which no format sees."""
    total, missed = two_sum(a, b)
    even = (missed != 0) & (total.view(np.uint64) & 1 == 0)
    return to_format(np.where(even, np.nextafter(total, np.copysign(np.inf, missed)), total), fmt)


def to_format(values: Array, fmt: Format) -> Array:
    return values.astype(np.float32).astype(np.float64) if fmt is F32 else round_to(values, fmt)


@dataclass(frozen=True)
class Partial:
    """Sums of some terms of each row, and the most roundings that one of these went through."""

    sums: Array
    height: int


def chain(x: Array, y: Array, fmt: Format, fused: bool) -> Partial:
    """Add the products along rows, one after the other."""
    sums = np.zeros(len(x))
    for a, b in zip(x.T, y.T, strict=True):
        sums = add(sums, a * b if fused else to_format(a * b, fmt), fmt)
    return Partial(sums, x.shape[1])


def joined(partials: list[Partial], fmt: Format, pick: Callable[[int], int]) -> Partial:
    """Join partial sums, two at a time, those that ``pick`` takes of so many."""
    while len(partials) > 1:
        a = partials.pop(pick(len(partials)))
        b = partials.pop(pick(len(partials)))
        partials.append(Partial(add(a.sums, b.sums, fmt), max(a.height, b.height) + 1))
    return partials[0]


def some_order(rng: np.random.Generator, x: Array, y: Array, fmt: Format) -> Partial:
    """Add the products along rows in chains of random lengths, joined by a random tree, or as a chain, or pairwise."""
    terms, fused = x.shape[1], bool(rng.random() < 0.5)
    cuts = np.flatnonzero(rng.random(terms - 1) < rng.choice([0.0, 0.05, 0.5, 1.0])) + 1
    parts = zip(np.split(x, cuts, axis=1), np.split(y, cuts, axis=1), strict=True)
    picks: list[Callable[[int], int]] = [lambda many: int(rng.integers(many)), lambda many: many - 1, lambda many: 0]
    return joined([chain(a, b, fmt, fused) for a, b in parts], fmt, picks[rng.integers(3)])


def check_orders(rng: np.random.Generator, kind: str, rows: int, fmt: Format, tally: Tally) -> None:
    """Hold sums of random terms, each in an order of its own, against the bound of their height."""
    of, terms = NARROW[rng.integers(3)], int(np.exp(rng.uniform(0, np.log(500))))
    x, y = (np.clip(DATA[kind](rng, (rows, terms), of), -of.largest, of.largest).astype(of.dtype) for _ in range(2))
    x, y = x.astype(np.float64), y.astype(np.float64)
    if kind == "cancelling" and rng.random() < 0.5:  # to 0 and near it: each term comes with its opposite, or nearly
        half = terms // 2
        x[:, half : 2 * half], y[:, half : 2 * half] = (
            -x[:, :half],
            y[:, :half] * (1 + (rng.random() < 0.5) * of.unit * 2),
        )
        x, y = to_format(x, of), to_format(y, of)
    high, low, magnitude = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for a, b in zip(x.T, y.T, strict=True):
        high, missed = two_sum(high, a * b)
        low, magnitude = low + missed, magnitude + np.abs(a * b)
    order = rng.permuted(np.broadcast_to(np.arange(terms), x.shape), axis=1)
    found = some_order(rng, np.take_along_axis(x, order, 1), np.take_along_axis(y, order, 1), fmt)
    output = NARROW[rng.integers(3)]
    bound = error_bound(found.height, terms, magnitude, fmt)
    last = output_bound(high, bound, output)
    decided = magnitude + bound <= fmt.largest
    for what, sums, limit in (
        (f"sum in {fmt}", found.sums, bound),
        (f"to {output}", round_to(found.sums, output), last),
    ):
        error = np.abs((sums - high) - low)
        held = decided & np.isfinite(limit)
        share = np.divide(error, limit, out=np.zeros(rows), where=held & (error > 0))
        tally.largest = max(tally.largest, float(share.max()))
        beyond = held & ~(error <= limit)
        tally.wrong += [f"{what}: {kind} {of}, {terms} terms, row {row}" for row in np.flatnonzero(beyond).tolist()]
    tally.compared += int(decided.sum())
    tally.kinds[str(fmt)] += int(decided.sum())


ROUNDING = [fmt for fmt in ACCUMULATIONS.values() if fmt is not F64]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(
        "certified",
        "Hold references against fractions, and sums in any order to the bound.",
        problems=1000,
        sums=100_000,
        seed=0,
    )
    parser.add_argument("what", choices=("references", "orders"))
    options = parser.parse_args(arguments)
    tally, started = Tally(), time.monotonic()
    with np.errstate(all="ignore"):
        if options.what == "references":
            for number in range(options.problems):
                check_reference(np.random.default_rng([101, options.seed, number]), kind_of(number), tally)
        else:
            number = 0
            while tally.compared < options.sums:
                rng = np.random.default_rng([102, options.seed, number])
                check_orders(rng, kind_of(number), 500, ROUNDING[number // len(DATA) % len(ROUNDING)], tally)
                number += 1
    print(*tally.wrong[:20], sep="\n")
    print(f"{options.what}, seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0


def kind_of(number: int) -> str:
    return list(DATA)[number % len(DATA)]
