"""Random problems of the classes whose kernels are special: depthwise, small groups, thin layers, long rows; all roles.

``python -m campaigns classes --kind normal --problems 20000 --seed 7`` holds so many against the bound of the specified
order, ``--kind integers`` against the oracle's bits. The chunks of a seed are those of the tests: each shares types and
an instruction set, so that it compiles few kernels. What is wrong is printed as a call; the exit code is then 1.

``--tiles`` draws layers that Winograd may compute instead, each with a ``max_error``. Three of four are computed by
tiles wherever ``max_error`` admits it, however small they are.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
import pytest

from campaigns.command import parser_of
from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.spec.activation import RELU
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem
from convgrad.spec.winograd import choice as chosen
from convgrad.spec.winograd.algorithms import algorithms
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
CHANNELS = (32, 33, 40, 47, 64)
TILED = {
    "tiles": Class((1, 1, 1, 2, 3), CHANNELS, CHANNELS, (2,), (1, 2, 3), range(1, 15), (3,), (1,)),
    "tiles of few taps": Class((1, 1, 2), CHANNELS, CHANNELS, (1, 2, 2, 3), (1, 2), (1, 2, 5, 9), (1, 3, 3, 5), (1,)),
    "tiles in slices": Class((1, 1, 2), CHANNELS, CHANNELS, (3, 2), (1, 2), range(1, 7), (2, 3, 3, 4), (1,)),
    "no tiles": Class((1, 1, 3), (8, 32, 40), (16, 31, 32), (1, 2), (1, 2), range(1, 9), (1, 2, 3), (1, 2)),
}
MAX_ERRORS = (2.0, 4.0, 8.0, 8.0, 27.0, 64.0, 64.0, 200.0)
# What chunks share: types of operands and results, an instruction set.
SHARED = list(product(ALL_TYPES, ALL_TYPES, HOST))


@dataclass
class Tally:
    """What was run, and what of it is wrong."""

    problems: int = 0
    elements: int = 0
    largest: float = 0.0  # error over its bound
    roles: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = f"{self.problems} problems, {self.elements} elements, {len(self.wrong)} problems wrong"
        counted = (self.roles, self.classes, self.types, self.ways)
        met = ", ".join(f"{name} {n}" for each in counted for name, n in sorted(each.items()))
        return f"{words}; largest error {self.largest:.4g} of its bound; {met}"


def cases_of(chunk: int, classes: Mapping[str, Class] = BIASED) -> Iterator[tuple[str, Case]]:
    """Yield calls without end, class after class, of the types that the chunk deals."""
    operand, output, _ = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([98, chunk])
    drawn = {name: draw(row, rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS) for name, row in classes.items()}
    drawn = {name: small(convs) for name, convs in drawn.items()}
    while True:
        for name, convs in drawn.items():
            yield name, any_case(next(convs), rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)


def small(convs: Iterator[Conv]) -> Iterator[Conv]:
    """Yield the problems with few weights."""
    return (conv for conv in convs if prod(conv.weights_shape) <= QUICK_ELEMENTS)


def run_chunk(chunk: int, kind: Kind, count: int, tally: Tally, classes: Mapping[str, Class] = BIASED) -> None:
    """Run calls of a chunk: most of them, or half, on kernels as for large problems, however small they are."""
    *_, isa = SHARED[chunk % len(SHARED)]
    rng, cases = np.random.default_rng([99, chunk, kind == "normal"]), cases_of(chunk, classes)
    large = count * 3 // 4 if classes is TILED else count // 2
    for as_large, share in ((True, large), (False, count - large)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONVGRAD_MAX_ISA", isa)
            if as_large:
                patch.setattr(constants, "SMALL_PROBLEM", 0)
                patch.setattr(constants, "FEWER_ROWS_POSITIONS", 1)
                patch.setattr(chosen, "_costs", partial(_any_tiles, rng))
            chosen.with_algorithm.cache_clear()
            for name, case in islice(cases, share):
                _run(name, case, rng, kind, isa, tally, tiled=classes is TILED)
    chosen.with_algorithm.cache_clear()


def _any_tiles(rng: np.random.Generator, problem: Problem, conv: Conv) -> dict[str, float]:
    """Return costs by which any algorithm may be the cheapest, except the direct sum."""
    return {"": math.inf} | {name: rng.random() for name in algorithms(conv)}


def _run(name: str, case: Case, rng: np.random.Generator, kind: Kind, isa: str, tally: Tally, tiled: bool) -> None:
    options: dict[str, Any] = {}
    if tiled:
        active = case.op.solves_for == ("src" if case.op.transposed else "dst") and rng.random() < 0.3
        options = {"max_error": float(rng.choice(MAX_ERRORS)), "activation": RELU if active else None}
    one = run_anyhow(case, rng, kind, isa, **options)
    problem = one.prepared.problem
    try:
        tally.largest = max(tally.largest, assert_exact(one) if kind == "integers" else assert_bounded(one))
    except AssertionError as error:
        tally.wrong.append(str(error))
    tally.problems += 1
    tally.elements += one.result.size
    tally.roles[case.op.solves_for] += 1
    tally.classes[name] += 1
    if tiled:
        by = f"{case.op.solves_for} {'by tiles' if problem.algorithm else 'direct'}"
        tally.types[f"{case.format} to {problem.output_format}{' by tiles' * bool(problem.algorithm)}"] += 1
        has = {
            "bias": "bias" in problem.operands, "old value": problem.accumulate, "activation": bool(problem.activation)
        }  # fmt: skip
        tally.ways.update([by, *(f"{by} with {each}" for each, there in has.items() if there)])
        tally.ways.update([f"tiles of {problem.algorithm}"] * bool(problem.algorithm))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("classes", "Hold random problems of special classes against the oracle.", problems=1000, seed=0)
    parser.add_argument("--kind", default="normal", choices=("normal", "integers"))
    parser.add_argument("--tiles", action="store_true", help="draw layers that Winograd may compute, with a max_error")
    options = parser.parse_args(arguments)
    classes = TILED if options.tiles else BIASED
    tally, started = Tally(), time.monotonic()
    for number, first in enumerate(range(0, options.problems, CHUNK)):
        told = len(tally.wrong)
        run_chunk(1000 * options.seed + number, options.kind, min(CHUNK, options.problems - first), tally, classes)
        for words in tally.wrong[told:]:
            print(f"wrong: {words}", flush=True)
    print(f"{options.kind}, seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0
