"""Batches cut anyhow between leaves, computed in pieces and joined in any order: the bits of the plain call on all.

``python -m campaigns cut --cuts 1000 --seed 7`` draws weight and bias gradients of every class, name, layout and
type, some with NaN, infinity and terms that cancel. What differs is printed as a call; the exit code is then 1.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest

import convgrad
from campaigns.command import run_chunks
from convgrad import engines
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.plan import constants
from convgrad.spec.geometry import Channels
from convgrad.spec.layouts import DATA, from_canonical
from convgrad.spec.operators import OPERATORS
from convgrad.spec.pieces import leaf_images
from convgrad.verify.fill import Kind
from tests.support.classes import BIAS, CLASSES, QUICK_ELEMENTS, TYPES, Class, any_case, draw
from tests.support.engine_helpers import HOST, Array
from tests.support.helpers import Case, operands_of

BATCHES = (1, 2, 5, 16, 17, 33, 64, 100, 257, 300)
MULTIPLY_ADDS = 400_000
STRIPS = Class((16, 32, 40), (1,), (1,), (2,), extents=(17, 20), kernel=(3, 5), strides=(1,), pads=("same_upper",))
LAYERS = CLASSES | {"strips": STRIPS}
PIECES = 8
FEW = 4  # drawn, of which the one of the most leaves is cut
BIASES = [op for op in OPERATORS if op.solves_for == "bias"]
SHARED = list(product(HOST, (True, False), TYPES, TYPES))  # what chunks share, so that they compile few kernels
CHUNK = 25


@dataclass
class Tally:
    """What was cut, and what of it has other bits than the whole."""

    cuts: int = 0
    pieces: Counter[int] = field(default_factory=Counter)
    sums: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    strategies: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = f"{self.cuts} cuts, {self.sums} sums, {len(self.wrong)} with other bits than the whole"
        met = (f"{name} {n}" for counter in (self.strategies, self.types, self.classes) for name, n in counter.items())
        return f"{words}; pieces {dict(sorted(self.pieces.items()))}; {', '.join(met)}"


def cases_of(rng: np.random.Generator, operand: str, output: str) -> Iterator[tuple[str, Case]]:
    """Yield calls without end, class after class."""
    drawn = {
        name: draw(replace(row, batch=BATCHES), rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS)
        for name, row in LAYERS.items()
    }
    while True:
        for name, convs in drawn.items():
            fitting = (c for c in convs if prod(c.weights_shape) <= QUICK_ELEMENTS and c.batch > leaf_images(c))
            conv = max(islice(fitting, FEW), key=lambda one: one.batch // leaf_images(one))
            yield name, any_case(conv, rng, FORMATS[operand], FORMATS[output])
        yield BIAS, _bias_case(rng, operand, output)


def _bias_case(rng: np.random.Generator, operand: str, output: str) -> Case:
    layout = str(rng.choice(DATA))
    extents = rng.integers(4, 20, 2).tolist()
    shape = (leaf_images(Channels(1, 1, extents)) + int(rng.integers(1, 40)), int(rng.integers(1, 40)), *extents)
    op = BIASES[rng.integers(len(BIASES))]
    return Case(op, (from_canonical(shape, layout),), {"data_format": layout}, FORMATS[operand], output)


def cuts_of(rng: np.random.Generator, batch: int, each: int) -> list[int]:
    """Return where 2 to 8 pieces begin and end, or fewer where there are not so many leaves."""
    legal = np.arange(each, batch, each)
    inner = rng.choice(legal, min(len(legal), int(rng.integers(1, PIECES))), replace=False)
    return [0, *sorted(map(int, inner)), batch]


def planted(array: Array, rng: np.random.Generator) -> Array:
    """Return an array with something in it that is no number: few elements of the result meet it."""
    array = array.copy()
    array.reshape(-1)[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return array


def run_cut(name: str, case: Case, rng: np.random.Generator, tally: Tally) -> None:
    """Cut one batch, and hold what is joined against the whole."""
    kind: Kind = "adversarial" if rng.random() < 0.3 else "normal"
    seed = int(rng.integers(1 << 30))
    operands = list(operands_of(case, kind, seed))
    is_shape = [port.is_shape for port in case.op.operands]
    if rng.random() < 0.1:
        operands[0] = planted(operands[0], rng)  # type: ignore[arg-type]
    problem = prepare(case.op.name, tuple(operands), case.attributes, case.dtype).problem
    at = cuts_of(rng, problem.geometry.batch, leaf_images(problem.geometry))
    accumulate, threads = bool(rng.random() < 0.3), [int(n) for n in rng.choice([1, 1, 2, 3], len(at))]
    before = rng.standard_normal(problem.output_shape).astype(problem.output_format.dtype) if accumulate else None

    def slices(a: int, b: int) -> list[Any]:
        return [x if shape else x[a:b] for x, shape in zip(operands, is_shape, strict=False)]  # type: ignore[index]

    def options() -> dict[str, Any]:
        return {"dtype": case.dtype, "accumulate": accumulate, "out": None if before is None else before.copy()}

    parts = [
        convgrad.partials(case.op.name, *slices(a, b), first=a, threads=n, **case.attributes)
        for (a, b), n in zip(pairwise(at), threads, strict=False)
    ]
    tally.sums += sum(len(part.sums) for part in parts)
    if len(parts) > 2 and rng.random() < 0.5:
        middle = int(rng.integers(len(parts) - 1))
        parts[middle : middle + 2] = [parts[middle] + parts[middle + 1]]
    if rng.random() < 0.2:
        parts = pickle.loads(pickle.dumps(parts))
    got = convgrad.join([parts[n] for n in rng.permutation(len(parts))], **options())
    whole = convgrad.run(case.op.name, *operands, threads=threads[-1], **options(), **case.attributes)
    tally.cuts += 1
    tally.pieces[len(at) - 1] += 1
    tally.classes[name] += 1
    tally.types[f"{case.format}"] += 1
    machine = engines.machine_of(problem)
    assert machine is not None
    tally.strategies[engines.plan_of(problem, machine, 1).strategy] += 1
    if got.tobytes() != whole.tobytes():
        differ = np.count_nonzero(got.view(f"u{got.itemsize}") != whole.view(f"u{got.itemsize}"))
        tally.wrong.append(f"{case} {kind} seed {seed} cut at {at} accumulate {accumulate}: {differ} of {got.size}")


def run_cuts(chunk: int, cuts: int, tally: Tally) -> None:
    """Run cuts of a chunk: an instruction set, types, and whether kernels are those of large problems."""
    isa, as_large, operand, output = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([16, chunk])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVGRAD_MAX_ISA", isa)
        if as_large:
            patch.setattr(constants, "SMALL_PROBLEM", 0)
        for name, case in islice(cases_of(rng, operand, output), cuts):
            run_cut(name, case, rng, tally)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_chunks(
        "cut",
        "Cut batches anyhow, and hold what is joined against the whole.",
        ("cuts", 1000),
        CHUNK,
        Tally(),
        run_cuts,
        arguments,
    )
