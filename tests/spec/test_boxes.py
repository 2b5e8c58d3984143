"""Where an image's sum may be cut, which boxes it is made of, by the definition of blocks; how many sums there are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from convgrad.functional.partials import partials_of
from convgrad.functional.rows import rows_of, subproblem_of_rows
from convgrad.notation import problem
from convgrad.spec.image_cuts import blocks_of, nodes_with_ranges, row_step
from convgrad.spec.order import FAN_IN, over_positions
from convgrad.spec.pieces import max_sums, nodes_of
from convgrad.spec.problem import canonical_shapes, of_images
from convgrad.spec.subproblems import positions
from tests.support.helpers import peak_bytes

RANDOM = 300


def extents_of(rng: np.random.Generator) -> tuple[int, ...]:
    axes = int(rng.integers(1, 5))
    *outer, last = rng.integers(1, {1: 3000, 2: 40, 3: 12, 4: 6}[axes], axes).tolist()
    return (*outer, int(rng.choice([last, 2, 30, 64, 100, 128, 256, 300, 700])))


def begins_of(extents: tuple[int, ...]) -> list[int]:
    """The first position of each block of an image, and the number of positions."""
    return [*over_positions(1, extents).begins().tolist(), prod(extents)]


def is_box(extents: tuple[int, ...], begin: int, end: int) -> bool:
    """Whether positions fill the box that they span."""
    spanned = [np.ptp(at) + 1 for at in np.unravel_index(np.arange(begin, end), extents)]
    return prod(map(int, spanned)) == end - begin


def test_a_sum_may_be_cut_where_rows_and_blocks_begin_and_all_blocks_are_boxes() -> None:
    rng, met = np.random.default_rng(1), set()
    for _ in range(RANDOM):
        extents = extents_of(rng)
        begins, row = begins_of(extents), prod(extents[1:])
        cuts = [at for at in range(1, extents[0]) if at * row in begins]
        if not all(is_box(extents, a, b) for a, b in pairwise(begins)):
            cuts = []
        step = row_step(extents)
        assert cuts == ([] if step is None else list(range(step, extents[0], step))), extents
        met.add((len(extents), step is None))
    assert len(met) == 8


def test_boxes_are_nodes_from_left_to_right_and_have_every_position_of_the_rows() -> None:
    rng, cut = np.random.default_rng(2), 0
    for _ in range(RANDOM):
        extents = extents_of(rng)
        step = row_step(extents)
        if step is None:
            continue
        cuts = [*range(0, extents[0], step), extents[0]]
        first, end = sorted(rng.choice(len(cuts), 2, replace=False).tolist()) if len(cuts) > 1 else (0, 1)
        taken, begins, at = range(cuts[first], cuts[end]), begins_of(extents), cuts[first] * prod(extents[1:])
        blocks = blocks_of(extents, taken)
        assert (begins[blocks.start], begins[blocks.stop]) == (at, taken.stop * prod(extents[1:]))
        for nodes, box in nodes_with_ranges(extents, blocks):
            inside = np.ravel_multi_index(np.ix_(*map(np.array, box)), extents).ravel()
            assert inside.tolist() == list(
                range(begins[nodes.leaves.start], begins[min(nodes.leaves.stop, len(begins) - 1)])
            )
            assert inside[0] == at
            assert nodes.number == 1 or nodes.first % FAN_IN == 0
            at += len(inside)
            cut += 1
        assert at == taken.stop * prod(extents[1:])
    assert cut > RANDOM


@pytest.mark.parametrize(
    ("extents", "taken", "calls"),
    [
        ((512, 512), range(512), 1),  # 1,024 blocks are 4 nodes of level 2, from a first child on
        ((1024, 1024), range(1024), 1),
        ((512, 512), range(256, 512), 2),
        ((400, 600), range(16), 1),  # 3 nodes of level 1, 48 blocks of 16 rows
        ((400, 600), range(16, 32), 33),  # the next 3, each apart: of 15 blocks and 1, 2 and 14 alone, 1 and 15 alone
    ],
)
def test_few_calls_make_what_rows_know(extents: tuple[int, ...], taken: range, calls: int) -> None:
    assert len(nodes_with_ranges(extents, blocks_of(extents, taken))) == calls


# -- how many arrays of sums there are ---------------------------------------------------------------------------------

CHANNELS = 128
LINE = f"BWD_W f32 NXC mb1ic{CHANNELS}ih12iw600oc{CHANNELS}oh12ow600kh1kw1"
LEAVES = f"BWD_W f32 NXC mb1ic{CHANNELS}ih1iw257oc{CHANNELS}oh1ow257kh1kw1"
SUM_BYTES = 4 * CHANNELS**2


def sums_at_most(call: Callable[[], object]) -> int:
    """How many sums' memory a call takes at most, beside what there was: so large that all else is nothing."""
    call()  # what is compiled and remembered
    return round(peak_bytes(call) / SUM_BYTES)


@pytest.mark.parametrize("taken", [range(12), range(1, 11), range(5, 12)])
def test_rows_hold_no_more_sums_than_stay_apart(taken: range) -> None:
    one = problem(LINE)
    slab = subproblem_of_rows(one, 0, taken)
    given = [
        np.ones(shape, np.float32).transpose(0, 2, 3, 1)[cut]
        for shape, cut in zip(canonical_shapes(one), slab.reads, strict=False)
    ]
    expected = max_sums([[nodes for nodes, _ in nodes_with_ranges(positions(one), blocks_of(positions(one), taken))]])
    assert sums_at_most(lambda: rows_of(slab, one, given, 1)) == expected


@pytest.mark.parametrize("each", [1, 7, 16])
def test_sums_that_grow_from_run_to_run_take_as_many_as_is_said(each: int) -> None:
    one, runs = problem(LEAVES), [range(n, min(n + each, 40)) for n in range(0, 40, each)]
    given = [np.ones(shape, np.float32) for shape in canonical_shapes(one)[:-1]]

    def grow() -> None:
        part = None
        for run in runs:
            some = [np.broadcast_to(array, (len(run), *array.shape[1:])) for array in given]
            part = partials_of(of_images(one, len(run)), some, run.start, 1, before=part)

    assert sums_at_most(grow) == max_sums(nodes_of(run.start, run.stop) for run in runs)
