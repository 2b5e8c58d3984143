"""Random problems of the classes whose kernels are special: depthwise, small groups, thin layers, long rows; all roles.

``python -m campaigns classes --kind normal --problems 20000 --seed 7`` holds so many against the bound of the specified
order, ``--kind integers`` against the oracle's bits. The chunks of a seed are those of the tests: each shares types and
an instruction set, so that it compiles few kernels. What is wrong is printed as a call; the exit code is then 1.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import prod

import numpy as np
import pytest

from campaigns.command import parser_of
from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.spec.geometry import Conv
from convgrad.verify.fill import Kind
from tests.engines.runs import assert_bounded, assert_exact, run_anyhow
from tests.support.classes import (
    ALL_TYPES,
    CLASSES,
    CONVOLUTIONS,
    FEW,
    GROUPS,
    LANES,
    QUICK_ELEMENTS,
    Class,
    any_case,
    draw,
)
from tests.support.engine_helpers import HOST
from tests.support.helpers import Case

CHUNK = 250  # problems
MULTIPLY_ADDS = 1_000_000
TAPS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255, 256, 257, 500, 1000, 2000, 4096)
POSITIONS = (1, 2, 15, 17, 31, 64, 100, 255, 257, 1000)
STRIDES, DILATIONS = (1, 1, 2, 3), (1, 1, 2, 3)
ROWS = Class(axes=(1,), batch=(1, 2, 5), extents=POSITIONS, kernel=TAPS, strides=(1, 1, 2, 3, 7), dilations=DILATIONS)

BIASED = {
    "depthwise": CLASSES["depthwise"],
    "depthwise volumes": replace(CLASSES["depthwise"], axes=(3,), kernel=(1, 2, 3), extents=(1, 2, 5, 8)),
    "depthwise rows": replace(ROWS, groups=LANES, inner=(1,), outer=(1,)),
    "multiplied": replace(CLASSES["multiplied"], dilations=DILATIONS),
    "folded": replace(CLASSES["folded"], strides=STRIDES, dilations=DILATIONS),
    "small groups": Class(GROUPS, range(1, 18), range(1, 18), strides=STRIDES, dilations=DILATIONS),
    "few a group": Class(GROUPS, FEW, FEW, strides=STRIDES, dilations=DILATIONS),
    "thin source": replace(CLASSES["thin source"], dilations=DILATIONS),
    "thin destination": replace(CLASSES["thin destination"], strides=STRIDES, dilations=DILATIONS),
    "thin rows": replace(ROWS, groups=(1, 1, 2, 5), inner=(1, 2, 3, 4, 17), outer=(1, 2, 3, 4, 17)),
}
# What chunks share: types of operands and results, an instruction set.
SHARED = list(product(ALL_TYPES, ALL_TYPES, HOST))


@dataclass
class Tally:
    """What was run, and what of it is wrong."""

    problems: int = 0
    elements: int = 0
    largest: float = 0.0  # error over its bound
    roles: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = f"{self.problems} problems, {self.elements} elements, {len(self.wrong)} problems wrong"
        met = ", ".join(f"{name} {n}" for name, n in (*sorted(self.roles.items()), *sorted(self.classes.items())))
        return f"{words}; largest error {self.largest:.4g} of its bound; {met}"


def cases_of(chunk: int) -> Iterator[tuple[str, Case]]:
    """Yield calls without end, class after class, of the types that the chunk deals."""
    operand, output, _ = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([98, chunk])
    drawn = {name: small(draw(row, rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS)) for name, row in BIASED.items()}
    while True:
        for name, convs in drawn.items():
            yield name, any_case(next(convs), rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)


def small(convs: Iterator[Conv]) -> Iterator[Conv]:
    """Yield the problems with few weights."""
    return (conv for conv in convs if prod(conv.weights_shape) <= QUICK_ELEMENTS)


def run_chunk(chunk: int, kind: Kind, count: int, tally: Tally) -> None:
    """Run calls of a chunk: half of them on kernels as for large problems, however small they are."""
    *_, isa = SHARED[chunk % len(SHARED)]
    rng, cases = np.random.default_rng([99, chunk, kind == "normal"]), cases_of(chunk)
    for as_large, share in ((True, count // 2), (False, count - count // 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONVGRAD_MAX_ISA", isa)
            if as_large:
                patch.setattr(constants, "SMALL_PROBLEM", 0)
                patch.setattr(constants, "FEWER_ROWS_POSITIONS", 1)
            for name, case in islice(cases, share):
                _run(name, case, rng, kind, isa, tally)


def _run(name: str, case: Case, rng: np.random.Generator, kind: Kind, isa: str, tally: Tally) -> None:
    one = run_anyhow(case, rng, kind, isa)
    try:
        tally.largest = max(tally.largest, assert_exact(one) if kind == "integers" else assert_bounded(one))
    except AssertionError as error:
        tally.wrong.append(str(error))
    tally.problems += 1
    tally.elements += one.result.size
    tally.roles[case.op.solves_for] += 1
    tally.classes[name] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("classes", "Hold random problems of special classes against the oracle.", problems=1000, seed=0)
    parser.add_argument("--kind", default="normal", choices=("normal", "integers"))
    options = parser.parse_args(arguments)
    tally, started = Tally(), time.monotonic()
    for number, first in enumerate(range(0, options.problems, CHUNK)):
        told = len(tally.wrong)
        run_chunk(1000 * options.seed + number, options.kind, min(CHUNK, options.problems - first), tally)
        for words in tally.wrong[told:]:
            print(f"wrong: {words}", flush=True)
    print(f"{options.kind}, seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0
