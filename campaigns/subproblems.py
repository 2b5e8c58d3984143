"""Sub-problems of random problems, compared with the whole: regions of outputs by bits, rows of images by sums.

``python -m campaigns subproblems --problems 2000 --seed 7`` draws calls of every operator that has an order of sums, of
every class, name, layout and type, some with NaN and infinity. What differs is printed as a call; the exit code is
then 1.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import prod

import numpy as np
import pytest

import convgrad
from campaigns.command import run_chunks
from campaigns.cut import SHARED, STRIPS, cuts_of, planted
from convgrad import engines
from convgrad.formats import FORMATS
from convgrad.functional.call import Prepared, prepare
from convgrad.functional.partials import SUMMED, Partials, partials_of
from convgrad.functional.rows import Rows, rows_of, subproblem_of_rows
from convgrad.plan import constants
from convgrad.plan.gemm.spec import GemmPlan, TransposedGemmPlan
from convgrad.plan.kn2row.spec import Kn2rowPlan
from convgrad.plan.recipe import Chosen
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.spec.geometry import Conv
from convgrad.spec.image_cuts import row_step
from convgrad.spec.layouts import DATA, from_canonical
from convgrad.spec.operators import OPERATORS
from convgrad.spec.pieces import leaf_images
from convgrad.spec.subproblems import Ranges, SubProblem, positions, subproblem_of
from tests.support.classes import BIAS, CLASSES, CONVOLUTIONS, Class, any_case, draw
from tests.support.engine_helpers import Array
from tests.support.helpers import Case, operands_of

MULTIPLY_ADDS, ELEMENTS = 1_000_000, 60_000
WIDE = (3, 5, 17, 40, 130, 256, 300, 520, 600)  # rows of a block and less, of several, of whole ones
LAYERS = CLASSES | {
    "strips": STRIPS,
    "wide": Class((1, 1, 2), (1, 2, 3), (1, 2, 5), (2, 2, 3), (1, 2), WIDE, (1, 2, 3), strides=(1, 2)),
    "wide volumes": Class((1, 16), (1,), (1,), (3, 4), (1,), (2, 3, 4, 6, 9, 130), (1, 2, 3), strides=(1, 2)),
    "planes": Class((4, 8), (4, 8), (4, 8), (2,), (1, 2), (3, 5, 40, 64), (1, 3), strides=(1,)),
    "few results": Class(inner=(16, 17, 32), outer=(1, 2, 3, 4), axes=(1, 2), kernel=range(1, 8), strides=(1, 2, 3)),
    "beyond the image": Class(axes=(1, 2, 3), extents=(1, 2, 5), kernel=(5, 9), dilations=(1, 3), pads=("any",)),
}
CHANNELS = [op for op in OPERATORS if op.solves_for in ("bias", "bias_add")]
BOXES, CUTS = 4, 4
FEW = 4  # drawn, of which that with the most places to cut its rows is a sum
CHUNK = 25
KINDS = {
    SpatialStencilPlan: "planes",
    Kn2rowPlan: "products",
    GemmPlan: "boxes",
    TransposedGemmPlan: "boxes",
    GroupedStencilPlan: "windows",
}


@dataclass
class Tally:
    """What was cut, and what of it has other bits than the whole."""

    problems: int = 0
    subproblems: int = 0
    rows: int = 0
    met: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def meet(self, kind: str, name: str) -> None:
        self.met.setdefault(kind, Counter())[name] += 1

    def __str__(self) -> str:
        words = f"{self.problems} problems, {self.subproblems} slabs, {self.rows} of them rows of images"
        met = (
            f"{kind}: {', '.join(f'{name} {n}' for name, n in each.most_common())}" for kind, each in self.met.items()
        )
        return "\n".join((f"{words}; {len(self.wrong)} with other bits than the whole", *met))


def cases_of(rng: np.random.Generator, operand: str, output: str) -> Iterator[tuple[str, Case]]:
    """Yield calls without end, class after class: of each a sum over the batch, and a forward or data gradient."""
    drawn = {
        name: draw(replace(one, batch=(1, 2, 3)), rng, MULTIPLY_ADDS, most_elements=ELEMENTS)
        for name, one in LAYERS.items()
    }
    summing = [op for op in CONVOLUTIONS if op.solves_for in SUMMED]
    writing = [op for op in CONVOLUTIONS if op.solves_for not in SUMMED]
    while True:
        for name, convs in drawn.items():
            fitting = (conv for conv in convs if prod(conv.weights_shape) <= ELEMENTS)
            for ops, some in ((summing, FEW), (writing, 1)):
                conv = max(islice(fitting, some), key=lambda one: len(_places(one)))
                yield name, any_case(conv, rng, FORMATS[operand], FORMATS[output], ops)
        for _ in range(2):
            yield BIAS, _of_channels(rng, operand, output)


def _places(conv: Conv) -> range:
    """Return where an image's rows may be cut."""
    extents = [axis.dst for axis in conv.axes]
    step = row_step(extents)
    return range(0) if step is None else range(step, extents[0], step)


def _of_channels(rng: np.random.Generator, operand: str, output: str) -> Case:
    op, layout = CHANNELS[rng.integers(len(CHANNELS))], str(rng.choice(DATA))
    channels, extents = int(rng.choice([0, 1, 3, 16, 33])), rng.choice([1, 2, 7, 20, 300], int(rng.integers(1, 4)))
    while prod(extents) > ELEMENTS // 32:
        extents[extents.argmax()] //= 3
    shape = from_canonical((int(rng.integers(1, 4)), channels, *extents.tolist()), layout)
    return Case(op, (shape, (channels,))[: len(op.operands)], {"data_format": layout}, FORMATS[operand], output)


def any_range(rng: np.random.Generator, extent: int) -> range:
    """Return some positions of an axis, or images of a batch: at least one; now and then one, a few, or all."""
    minimum = int(rng.choice([1, 1, 2, extent]))
    begin = int(rng.integers(0, max(1, extent - minimum + 1)))
    return range(begin, int(rng.integers(min(begin + minimum, extent), extent + 1)))


def computed(
    subproblem: SubProblem, prepared: Prepared, given: Sequence[Array], before: Array | None, threads: int
) -> Array:
    """Return what a slab writes, from copies of the regions that it reads: it can see nothing beside them."""
    problem = subproblem.problem
    read = [array[region].copy() for array, region in zip(given, subproblem.reads, strict=True)]
    views = [array.transpose(order) for array, order in zip(read, prepared.problem.operand_orders, strict=True)]
    out = np.full(problem.output_shape, np.nan, problem.output_format.dtype)
    if before is not None:
        out[...] = before[subproblem.writes]
    engines.execute(problem, views, out.transpose(problem.output_order), threads)
    return out


def boxes_of(prepared: Prepared, rng: np.random.Generator) -> Iterator[tuple[range, Ranges]]:
    """Yield some images and boxes of positions."""
    problem = prepared.problem
    for _ in range(BOXES):
        yield (
            any_range(rng, problem.geometry.batch),
            tuple(any_range(rng, extent) for extent in positions(problem)),
        )


def parts_of(prepared: Prepared, given: Sequence[Array], rng: np.random.Generator, tally: Tally) -> list[Partials]:
    """Return the parts of a batch: runs of leaves, and images of which rows are computed apart."""
    problem, parts = prepared.problem, []
    step = row_step(positions(problem))
    for first, end in pairwise(cuts_of(rng, problem.geometry.batch, leaf_images(problem.geometry))):
        if step is None or (end - first == 1 and rng.random() < 0.1):
            subproblem = subproblem_of(problem, range(first, end), tuple(map(range, positions(problem))))
            read = [array[region].copy() for array, region in zip(given, subproblem.reads, strict=True)]
            views = [array.transpose(order) for array, order in zip(read, problem.operand_orders, strict=True)]
            threads, before = int(rng.integers(1, 4)), parts.pop() if parts and rng.random() < 0.5 else None
            parts.append(partials_of(subproblem.problem, views, first, threads, before=before))
            tally.subproblems += 1
        else:
            parts += [_by_rows(prepared, given, image, step, rng, tally) for image in range(first, end)]
    return parts


def _by_rows(
    prepared: Prepared, given: Sequence[Array], image: int, step: int, rng: np.random.Generator, tally: Tally
) -> Partials:
    problem = prepared.problem
    height = positions(problem)[0]
    legal = np.arange(step, height, step)
    inner = rng.choice(legal, min(len(legal), int(rng.integers(1, CUTS + 1))), replace=False)
    rows: list[Rows] = []
    for begin, end in pairwise([0, *sorted(map(int, inner)), height]):
        subproblem = subproblem_of_rows(problem, image, range(begin, end))
        read = [array[region].copy() for array, region in zip(given, subproblem.reads, strict=True)]
        threads, before = int(rng.integers(1, 4)), rows.pop() if rows and rng.random() < 0.5 else None
        kept = [array.tobytes() for array in before.sums] if before else []
        rows.append(rows_of(subproblem, problem, read, threads, before))
        assert kept == ([array.tobytes() for array in before.sums] if before else []), "written to what was before"
        tally.subproblems += 1
        tally.rows += 1
    if rng.random() < 0.2:
        rows = pickle.loads(pickle.dumps(rows))
    while len(rows) > 1:  # in any grouping
        at = int(rng.integers(len(rows) - 1))
        rows[at : at + 2] = [rows[at] + rows[at + 1]]
    return rows[0].partials()


def run_problem(name: str, case: Case, rng: np.random.Generator, tally: Tally) -> None:
    """Cut one problem, and compare its sub-problems with the whole."""
    kind, seed = ("adversarial" if rng.random() < 0.3 else "normal"), int(rng.integers(1 << 30))
    operands = list(operands_of(case, kind, seed))  # type: ignore[arg-type]
    for at, port in enumerate(case.op.operands[: len(operands)]):
        if not port.is_shape and np.size(operands[at]) and rng.random() < 0.1:
            operands[at] = planted(operands[at], rng)  # type: ignore[arg-type]
    accumulate, threads = bool(rng.random() < 0.3), int(rng.integers(1, 4))
    prepared = prepare(case.op.name, tuple(operands), case.attributes, case.dtype, accumulate)
    problem, given = prepared.problem, list(prepared.taken.values())
    before = rng.standard_normal(problem.output_shape).astype(problem.output_format.dtype) if accumulate else None
    whole = prepared.execute(None if before is None else before.copy(), threads)
    told = f"{case} {kind} seed {seed} accumulate {accumulate}"
    if problem.solves_for in SUMMED:
        out = None if before is None else before.copy()
        parts = parts_of(prepared, given, rng, tally)
        got = convgrad.join(parts, dtype=problem.output_format.name, out=out, accumulate=accumulate)
        _hold(got, whole, f"{told}: joined", tally)
    else:
        for images, ranges in boxes_of(prepared, rng):
            subproblem = subproblem_of(problem, images, ranges)
            got = computed(subproblem, prepared, given, before, int(rng.integers(1, 4)))
            _hold(got, whole[subproblem.writes], f"{told}: images {images}, box {ranges}", tally)
            tally.subproblems += 1
    tally.problems += 1
    tally.meet("names", case.op.name)
    tally.meet("classes", name)
    tally.meet("types", str(case.format))
    tally.meet("axes", str(len(positions(problem))))
    machine = engines.machine_of(problem)
    tally.meet("kernels", "none" if machine is None else _kernel(engines.plan_of(problem, machine, 1)))


def _hold(got: Array, expected: Array, words: str, tally: Tally) -> None:
    if got.shape != expected.shape or got.dtype != expected.dtype or got.tobytes() != expected.tobytes():
        tally.wrong.append(f"{words}: {np.count_nonzero(got != expected)} of {got.size}")


def _kernel(plan: Chosen) -> str:
    """Return which kernels compute a plan: a strategy of weight gradients, or a nest of forwards."""
    return KINDS.get(type(plan)) or plan.strategy


def run_chunk(chunk: int, problems: int, tally: Tally) -> None:
    """Run problems of a chunk: an instruction set, types, and whether kernels are those of large problems."""
    isa, as_large, operand, output = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([17, chunk])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVGRAD_MAX_ISA", isa)
        if as_large:
            patch.setattr(constants, "SMALL_PROBLEM", 0)
        skipped = int(rng.integers(2 * len(LAYERS)))  # so that short chunks meet all classes, too
        for name, case in islice(cases_of(rng, operand, output), skipped, skipped + problems):
            run_problem(name, case, rng, tally)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_chunks(
        "subproblems",
        "Cut problems into sub-problems at random, and compare these with the whole.",
        ("problems", 2000),
        CHUNK,
        Tally(),
        run_chunk,
        arguments,
    )
