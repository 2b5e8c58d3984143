"""Slabs of a problem have the bits of the whole: forwards and data gradients in boxes, sums in rows that are joined."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest

from campaigns.subproblems import BIAS, LAYERS, Tally, run_chunk
from convgrad import engines
from convgrad.functional.join import join
from convgrad.functional.rows import Rows, rows_of, subproblem_of_rows
from convgrad.notation import problem
from convgrad.spec import subproblems
from convgrad.spec.image_cuts import blocks_of, row_step
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.problem import Problem, canonical_shapes, intern, of_images
from convgrad.spec.subproblems import Region, positions, subproblem_of, whole
from tests.support.helpers import assert_same_bits

Array = np.ndarray

SUMS = (
    "BWD_W f32 NXC mb2ic4ih61iw40oc6oh61ow40kh3ph1kw3pw1",
    "BWD_W bf16 NXC mb2ic3ih70iw400oc5oh35ow200kh3ph1pw1sh2sw2kw3",
    "BWD_W f32 NXC mb1ic3iw3000oc5ow3000kw5pw2",
    "BWD_W f16 NCX mb1ic3id20ih10iw150oc5od20oh10ow150kh3ph1kd3pd1kw3pw1",
    "BWD_W f32 NXC mb1ic3ih40iw700oc5oh40ow700kh3ph1pw1kw3",
    "BWD_W f32 NXC g8mb1ic8id20ih9iw130oc8od20oh9ow130kh3ph1kd3pd1kw3pw1",
)
WRITTEN = (
    "FWD_B f32 NXC mb3ic4ih23iw20oc6oh23ow20kh3ph1kw3pw1",
    "FWD_D f16 NCX mb3ic4ih23iw20oc6oh6ow5kh3sh4sw4ph1pw1kw3",
    "BWD_D f32 NXC mb3ic4ih23iw20oc6oh6ow5kh3sh4sw4ph1pw1kw3",
    "BWD_D f32 NXC mb3ic4ih23iw20oc6oh8ow7kh1kw1sh3sw3ph0pw0",
    "BWD_D bf16 NXC mb3ic3ih23iw20oc16oh23ow20kh3ph1pw1kw3",
    "FWD_D f32 NXC g8mb3ic8ih23iw20oc8oh23ow20kh3ph1pw1kw3",
    "BWD_D f32 NXC g8mb3ic8ih23iw20oc8oh23ow20kh3ph1pw1kw3",
    "FWD_D f32 NXC mb3ic4ih5iw20oc6oh25ow20kh3ph11pw1kw3",
    "BWD_D f32 NXC mb3ic4ih30iw20oc6oh2ow20kh3ph0pw1sh20sw19kw3",
)


def operands_of(one: Problem) -> list[Array]:
    rng, (*shapes, _) = np.random.default_rng(1), canonical_shapes(one)
    return [rng.standard_normal(shape).astype(np.float32).astype(one.operand_format.dtype) for shape in shapes]


def computed(one: Problem, operands: list[Array]) -> Array:
    out = np.full(canonical_shapes(one)[-1], np.nan, one.output_format.dtype)
    engines.execute(one, operands, out, 1)
    return out


def canonical(region: Region, layout: str) -> Region:
    return tuple(region[axis] for axis in axis_order(layout, len(region))) if len(region) > 1 else region


@pytest.mark.every(5)
@pytest.mark.parametrize("line", WRITTEN)
def test_a_box_of_results_has_the_bits_of_the_whole(line: str) -> None:
    one, chance = problem(line), random.Random(line)
    operands = operands_of(one)
    expected = computed(one, operands)
    for _ in range(10):
        box = tuple(range(*sorted(chance.sample(range(extent + 1), 2))) for extent in positions(one))
        slab = subproblem_of(one, range(*sorted(chance.sample(range(4), 2))), box)
        read = [a[canonical(r, lie)] for a, r, lie in zip(operands, slab.reads, one.layouts, strict=False)]
        assert [a.shape for a in read] == list(canonical_shapes(slab.problem)[:-1])
        assert all(min(axis.pad_begin, axis.pad_end) >= 0 for axis in slab.problem.geometry.axes)
        assert_same_bits(computed(slab.problem, read), expected[canonical(slab.writes, one.layouts[-1])], slab)


@pytest.mark.parametrize("line", [*SUMS, *WRITTEN])
def test_all_positions_are_the_problem_itself(line: str) -> None:
    """So what is known of images that were read whole joins what is known of rows."""
    for remembered in (intern, of_images, subproblem_of, subproblems._with):
        remembered.cache_clear()  # each forgets by itself: after other tests' problems it may be another, equal one
    one = problem(line)
    slab = subproblem_of(one, range(1), whole(one))
    assert slab.problem is of_images(one, 1)
    shapes = [
        from_canonical(shape, lie) for shape, lie in zip(canonical_shapes(slab.problem), one.layouts, strict=True)
    ]
    regions = [tuple(slice(0, extent) for extent in shape) for shape in shapes]
    assert [*slab.reads, slab.writes] == regions


@pytest.mark.every(3)
@pytest.mark.parametrize("line", SUMS)
def test_rows_of_images_are_joined_to_the_bits_of_the_whole(line: str) -> None:
    one, chance = problem(line), random.Random(line)
    operands = operands_of(one)
    inverse = [np.argsort(axis_order(lie, a.ndim)) for a, lie in zip(operands, one.layouts, strict=False)]
    given = [a.transpose(order) for a, order in zip(operands, inverse, strict=True)]
    height = positions(one)[0]
    parts = []
    for image in range(one.geometry.batch):
        cuts = sorted({0, height, *chance.sample(range(0, height, row_step(positions(one)) or height), 3)})
        subproblems = [subproblem_of_rows(one, image, range(a, b)) for a, b in pairwise(cuts)]
        rows = [
            rows_of(slab, one, [a[region] for a, region in zip(given, slab.reads, strict=True)]) for slab in subproblems
        ]
        assert all(sys.getsizeof(some) > sum(array.nbytes for array in some.sums) for some in rows)
        parts.append(reduce(add, rows).partials())
    joined = join(parts, dtype=one.output_format.name)
    assert_same_bits(joined.transpose(one.output_order), computed(one, operands), line)


SQUARE = problem("BWD_W f32 NXC mb2ic1ih56iw56oc1oh56ow56kh1kw1")
TALL = problem("BWD_W f32 NXC mb2ic1ih60iw56oc1oh60ow56kh1kw1")
APART = problem("BWD_W f32 NXC mb1ic1id41ih7iw64oc1od41oh7ow64kd1kh1kw1")


def some_rows(one: Problem, image: int, begin: int, end: int, before: Rows | None = None) -> Rows:
    slab = subproblem_of_rows(one, image, range(begin, end))
    given = [np.ones([cut.stop - cut.start for cut in region], np.float32) for region in slab.reads]
    return rows_of(slab, one, given, before=before)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: some_rows(SQUARE, 0, 0, 6), "56x56 positions may be cut at multiples of 4 rows; got rows 0 to before 6"),
    (lambda: some_rows(SQUARE, 0, 2, 56), "got rows 2 to before 56"),
    (lambda: some_rows(APART, 0, 0, 3), "41x7x64 positions may be cut nowhere; got rows 0 to before 3"),
    (
        lambda: some_rows(APART, 0, 0, 41),
        "block 15 of an image of 41x7x64 positions has no ranges: it is computed whole",
    ),
    (lambda: some_rows(SQUARE, 0, 0, 4) + some_rows(SQUARE, 0, 8, 12), "one another .* 0 to before 4 and .* rows 8 to"),
    (lambda: some_rows(SQUARE, 0, 0, 4) + some_rows(SQUARE, 1, 4, 8), "one another .* image 0, .* and image 1, "),
    (lambda: some_rows(SQUARE, 0, 0, 4) + some_rows(TALL, 0, 4, 8), "must be of one problem"),
    (lambda: some_rows(SQUARE, 0, 4, 8, some_rows(SQUARE, 1, 0, 4)), "one another .* image 1, .* and image 0, rows 4 "),
    (lambda: blocks_of((56, 56), range(4, 4)), "multiples of 4 rows; got rows 4 to before 4"),
    (lambda: some_rows(SQUARE, 1, 0, 4).partials(), "all rows of the image, 56; got image 1, rows 0 to before 4"),
    (
        lambda: rows_of(subproblem_of(SQUARE, range(2), whole(SQUARE)), SQUARE, []),
        "of one image; got images range.0, 2",
    ),
    (lambda: rows_of(subproblem_of(SQUARE, range(1), (range(56), range(8))), SQUARE, []), "got images .* and ranges"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_are_no_rows_of_a_sum_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_slabs_of_problems_of_any_class() -> None:
    tally = Tally()
    run_chunk(0, 6, tally)
    assert (tally.problems, tally.rows) == (6, 12)
    assert not tally.wrong


@pytest.mark.long
def test_a_thousand_problems_in_slabs() -> None:
    tally = Tally()
    for chunk in range(1000, 1040):
        run_chunk(chunk, 25, tally)
    assert tally.problems == 1000
    assert not tally.wrong
    assert set(tally.met["kernels"]) >= {"dense", "depthwise", "boxes", "windows", "planes", "products"}
    assert set(tally.met["classes"]) == {*LAYERS, BIAS}


def test_a_copy_of_a_problem_is_equal_and_has_no_hash_of_another_process() -> None:
    """Strings hash otherwise in each process: a hash that is pickled would make two of one problem there."""
    one = problem("BWD_W f32 NXC mb2ic1iw3oc1ow3kw3pw1")
    hash(one)
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert "_hash" in vars(one), "kept, as it is needed again and again"
        assert "_hash" not in vars(copied)
        assert {one, copied} == {one}
        assert copied.output_shape == one.output_shape
