"""Pieces of a batch joined have the bits of the plain call on all of it; what they say of themselves."""

from __future__ import annotations

import functools
import operator
import pickle
import sys
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from campaigns.cut import Tally, run_cuts
from convgrad import Partials, join, partials
from convgrad.functional.call import prepare
from convgrad.functional.partials import partials_of
from convgrad.plan.machine import LINE_BYTES
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import of_images
from tests.functional.other_arrays import Own, Theirs
from tests.support.engine_helpers import digest
from tests.support.helpers import assert_same_bits
from tests.support.roles import LAYOUTS, WRITABLE

F32, BF16 = np.float32, ml_dtypes.bfloat16
Array = np.ndarray
WEIGHTS, BIAS = "ConvolutionBackwardWeights", "BiasAddBackward"


def same(kernel: tuple[int, ...], **more: Any) -> dict[str, Any]:
    return {"weights_shape": kernel, "strides": 1, "dilations": 1, "auto_pad": "same_upper"} | more


# name: operator, type, shapes of a batch, attributes, cuts
LAYERS: dict[str, tuple[str, Any, list[tuple[int, ...]], dict[str, Any], list[int]]] = {
    "dense": (WEIGHTS, F32, [(40, 17, 17, 8), (40, 17, 17, 8)], same((3, 3, 8, 8)), [3, 16, 20, 33, 39]),
    "packs": (WEIGHTS, F32, [(93, 7, 7, 8), (93, 7, 7, 8)], same((3, 3, 8, 8)), [5, 10, 80, 90]),
    "taps in the tile": (WEIGHTS, BF16, [(40, 20, 20, 3), (40, 20, 20, 8)], same((3, 3, 3, 8)), [1, 17, 39]),
    "grouped": (WEIGHTS, np.float16, [(40, 9, 9, 32), (40, 9, 9, 32)], same((3, 3, 2, 32), groups=16), [3, 15, 36]),
    "strips": (WEIGHTS, F32, [(40, 17, 17, 32), (40, 17, 17, 32)], same((3, 3, 1, 32), groups=32), [3, 16, 33]),
    "channels first": (WEIGHTS, F32, [(40, 8, 7, 7), (40, 8, 7, 7)],
                       same((8, 8, 3, 3), data_format="NCX", weights_format="OIX"), [15, 35]),
    "transposed": ("ConvTransposeBackwardWeights", F32, [(40, 9, 9, 4), (40, 18, 18, 4)],
                   {"weights_shape": (2, 2, 4, 4), "strides": 2, "dilations": 1}, [3, 36]),
    "an older name": ("ConvolutionBackpropFilters-1", F32, [(40, 9, 4), (40, 9, 4)],
                      {"filter_shape": (1, 4, 4), "strides": 1, "dilations": 1}, [28]),
    "bias": (BIAS, BF16, [(600, 2, 3)], {}, [128, 256, 512]),
}  # fmt: skip


MORE_TYPES = {"dense": "bf16", "bias": "f16"}  # of results, beside f32 and the operands' own


@functools.cache
def operands_of(name: str) -> tuple[Array, ...]:
    rng = np.random.default_rng(len(name))
    _, dtype, shapes, _, _ = LAYERS[name]
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def part(name: str, begin: int, end: int, threads: int | None = None) -> Partials:
    op, _, _, attributes, _ = LAYERS[name]
    return partials(op, *(a[begin:end] for a in operands_of(name)), first=begin, threads=threads, **attributes)


def parts_of(name: str) -> list[Partials]:
    batch = LAYERS[name][2][0][0]
    return [part(name, a, b, 1 + n % 2) for n, (a, b) in enumerate(pairwise([0, *LAYERS[name][4], batch]))]


def bytes_of(one: Partials) -> list[bytes]:
    return [array.tobytes() for array in one.sums]


def whole(name: str, **options: Any) -> Array:
    op, _, _, attributes, _ = LAYERS[name]
    return prepare(
        op, operands_of(name), attributes, options.pop("dtype", None), "out" in options, lenient=True
    ).execute(**options)


@pytest.mark.every(5)
@pytest.mark.parametrize("name", LAYERS)
def test_pieces_are_joined_to_the_bits_of_the_whole(name: str) -> None:
    """In any order and type of the result; the gradients of the pieces added would be other sums."""
    parts = parts_of(name)
    for dtype in {"f32", MORE_TYPES.get(name)}:
        expected = whole(name, dtype=dtype)
        assert_same_bits(join(parts, dtype=dtype), expected, name)
        assert_same_bits(join(iter(parts[::-1]), dtype=dtype), expected, name)


def test_the_gradients_of_pieces_added_are_another_sum() -> None:
    """So the law above can fail: the tree of the batch is not that of the pieces."""
    x, y = operands_of("dense")
    gradients = [
        convgrad.convolution_backward_weights(x[a:b], y[a:b], (3, 3, 8, 8), auto_pad="same_upper")
        for a, b in pairwise([0, 3, 16, 20, 33, 39, 40])
    ]
    assert digest(functools.reduce(operator.add, gradients)) != digest(whole("dense"))


def test_batches_cut_anyhow() -> None:
    tally = Tally()
    run_cuts(5, 2, tally)
    assert tally.cuts == 2
    assert not tally.wrong


@pytest.mark.long
def test_a_thousand_batches_cut_anyhow() -> None:
    tally = Tally()
    for chunk in range(1000, 1040):
        run_cuts(chunk, 25, tally)
    assert tally.cuts == 1000
    assert not tally.wrong
    assert len(tally.strategies) == 4
    assert len(tally.pieces) == 7


def test_the_specified_order_executed_is_what_pieces_join_to() -> None:
    rng = np.random.default_rng(3)
    for extents, batch, at in (((257,), 19, [1, 5, 18]), ((50,), 100, [5, 85])):
        y = rng.standard_normal((batch, *extents, 2)).astype(F32)
        parts = [partials(BIAS, y[a:b], first=a) for a, b in pairwise([0, *at, batch])]
        problem = prepare(BIAS, (y,), {}).problem
        assert_same_bits(join(parts), evaluate_in_order(problem, [np.moveaxis(y, -1, 1)]), extents)


def test_every_single_leaf_apart() -> None:
    parts = [part("dense", n, n + 1) for n in range(40)]
    assert all(len(one.sums) == 1 for one in parts)
    assert_same_bits(join(parts), whole("dense"), "leaves")
    together = functools.reduce(operator.add, parts)
    assert bytes_of(together) == bytes_of(part("dense", 0, 40))


def test_neighbours_add_in_any_grouping_and_stay_as_they_are() -> None:
    parts = parts_of("dense")[:4]
    before = [bytes_of(one) for one in parts]
    made = set()
    for steps in permutations(range(3)):
        left = {n: one for n, one in enumerate(parts)}
        for step in steps:
            one = next(left[n] for n in range(step, -1, -1) if n in left)
            two = next(other for other in left.values() if other.first == one.end)
            left = {n: other for n, other in left.items() if other is not two}
            left[next(n for n, other in left.items() if other is one)] = two + one if step == 1 else one + two
        (all_,) = left.values()
        made.add((all_.first, all_.end, *(array.tobytes() for array in all_.sums)))
    direct = part("dense", 0, 33)
    assert made == {(0, 33, *(array.tobytes() for array in direct.sums))}
    assert before == [bytes_of(one) for one in parts]


@pytest.mark.parametrize("name", ["dense", "packs", "bias"])
def test_a_part_computed_onto_the_one_before_is_the_sum_of_both(name: str) -> None:
    """And the one before stays as it was; nothing is computed onto what is no neighbour."""
    op, _, _, attributes, cuts = LAYERS[name]
    prepared = prepare(op, operands_of(name), attributes, lenient=True)
    parts = parts_of(name)
    grown = part(name, 0, 0)
    for one, (a, b) in zip(parts, pairwise([0, *cuts, prepared.problem.geometry.batch]), strict=True):
        before, kept = grown, bytes_of(grown)
        some = of_images(prepared.problem, b - a)
        grown = partials_of(some, [array[a:b] for array in prepared.operands], a, before=before)
        expected = before + one
        assert (grown.first, grown.end) == (expected.first, expected.end)
        assert bytes_of(grown) == bytes_of(expected)
        assert bytes_of(before) == kept
    with pytest.raises(convgrad.InvalidShapeError, match=r"\[P5\]$"):
        partials_of(some, [array[a:b] for array in prepared.operands], a, before=grown)


def test_no_images_are_a_piece_too() -> None:
    parts = [part("packs", 0, 0), part("packs", 5, 93), part("packs", 0, 5), part("packs", 40, 40)]
    assert_same_bits(join(parts), whole("packs"), "with two of none")
    assert parts[3] + parts[2] is parts[2] + parts[3] is parts[2]
    assert not join([parts[0]]).any()
    old = np.ones((3, 3, 8, 8), F32)
    assert (join([parts[0]], out=old, accumulate=True) == 1).all()


@pytest.mark.parametrize("lies", sorted(WRITABLE))
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_into_any_out_added_to_what_it_held(lies: str, dtype: str) -> None:
    old = np.random.default_rng(4).standard_normal((3, 3, 8, 8)).astype(BF16 if dtype == "bf16" else F32)
    parts, expected = parts_of("packs"), whole("packs", dtype=dtype, out=old.copy())
    out = WRITABLE[lies](old)
    assert join(parts, dtype=dtype, out=out, accumulate=True) is out
    assert_same_bits(np.ascontiguousarray(out), expected, lies)
    out[...] = np.nan
    assert_same_bits(np.ascontiguousarray(join(parts, dtype=dtype, out=out)), whole("packs", dtype=dtype), lies)


def test_an_out_of_a_subclass_is_written_as_an_array() -> None:
    every_second = np.empty((3, 3, 8, 16), F32)[..., ::2]
    out = every_second.view(Own)
    assert join(parts_of("packs"), out=out) is out
    assert_same_bits(np.ascontiguousarray(every_second), whole("packs"), "own")


@pytest.mark.parametrize("lies", sorted(LAYOUTS))
def test_operands_that_lie_anyhow(lies: str) -> None:
    x, y = (LAYOUTS[lies](array) for array in operands_of("packs"))
    parts = [partials(WEIGHTS, x[a:b], y[a:b], first=a, **LAYERS["packs"][3]) for a, b in ((0, 10), (10, 93))]
    expected = convgrad.convolution_backward_weights(x, y, (3, 3, 8, 8), auto_pad="same_upper")
    assert_same_bits(join(parts), expected, lies)


def test_signs_of_zeros_and_what_is_no_number() -> None:
    """Of -0 alone, of NaN with a payload, of infinities of both signs, of subnormal numbers."""
    y = np.full((40, 300, 6), -0.0, F32)
    y[5, 0, 1] = np.array(0x7F800123, np.uint32).view(F32)
    y[3, 0, 2], y[33, 7, 2] = np.inf, -np.inf
    y[20, 5, 3] = np.inf
    y[::3, :, 4] = 2.0**-149
    y[1, 0, 5], y[39, 0, 5] = 1, -1
    parts = [partials(BIAS, y[a:b], first=a) for a, b in pairwise([0, 3, 20, 34, 40])]
    result = join(parts)
    assert_same_bits(result, convgrad.bias_add_backward(y), "edges")
    assert result.view(np.uint32)[[0, 1, 2, 5]].tolist() == [0, 0x7FC00000, 0x7FC00000, 0]


def test_accumulated_chunk_by_chunk_in_f32_the_bits_are_those_of_one_call() -> None:
    for name in ("dense", "packs", "taps in the tile", "strips"):
        op, _, shapes, attributes, _ = LAYERS[name]
        x, y = operands_of(name)
        axes = len(shapes[0]) - 2
        strict = attributes | {"strides": [1] * axes, "dilations": [1] * axes}
        del strict["weights_shape"]
        plan = convgrad.explain(op, *shapes, attributes["weights_shape"], **strict)
        chunk = plan.chunk_images
        assert chunk is not None
        assert 1 < -(-len(x) // chunk) <= 16
        assert list(plan.cuts) == list(range(plan.leaf_images or 0, len(x), plan.leaf_images or 0))
        sums = None
        for a in range(0, len(x), chunk):
            given = x[a : a + chunk], y[a : a + chunk], attributes["weights_shape"]
            sums = convgrad.run(op, *given, dtype="f32", out=sums, accumulate=sums is not None, **strict)
        assert_same_bits(sums, whole(name, dtype="f32"), name)  # type: ignore[arg-type]


def test_explain_tells_where_a_batch_may_be_cut() -> None:
    packs = convgrad.explain(BIAS, (20, 7, 7, 4))
    assert (packs.leaf_images, list(packs.cuts), packs.chunk_images) == (5, [5, 10, 15], 5)
    assert "a leaf is 5 images: cut at multiples; accumulating f32 5 images at a time" in str(packs)
    images = convgrad.explain(BIAS, (20, 17, 17, 4))
    assert (images.leaf_images, len(images.cuts), images.chunk_images) == (1, 19, 16)
    assert "a leaf is an image: cut anywhere; accumulating f32 16 images at a time" in str(images)
    for other in (convgrad.explain(BIAS, (20, 7, 7, 4), operand_type="f64"), convgrad.explain("BiasAdd", (2, 3), (3,))):
        assert (other.leaf_images, list(other.cuts), other.chunk_images) == (None, [], None)
        assert "a leaf" not in str(other)


def test_a_piece_says_what_it_is() -> None:
    one = part("packs", 80, 93)
    assert (one.first, one.end, one.leaf_images, one.leaves, one.ends_the_batch) == (80, 93, 5, range(16, 19), True)
    assert one.nbytes == sum(array.nbytes for array in one.sums) == 3 * 3 * 8 * 8 * 4
    assert str(one) == "ConvolutionBackwardWeights f32, images 80 to before 93, leaves of 5: 1 sum of 3x3x8x8, 2.25 KiB"
    assert repr(part("packs", 5, 15)) == (
        "<Partials: ConvolutionBackwardWeights f32, images 5 to before 15, leaves of 5: 2 sums of 3x3x8x8, 4.5 KiB>"
    )
    assert not part("packs", 5, 15).ends_the_batch


def test_pieces_are_sent_as_bytes_or_as_what_they_are_and_their_arrays() -> None:
    parts = parts_of("dense")
    assert_same_bits(join(pickle.loads(pickle.dumps(parts))), whole("dense"), "pickled")
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(parts, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == sum(len(one.sums) for one in parts)
    assert_same_bits(join(pickle.loads(pickled, buffers=buffers)), whole("dense"), "out of band")
    apart = [(replace(one, sums=()), [np.asfortranarray(array.astype(">f4")) for array in one.sums]) for one in parts]
    assert_same_bits(join(replace(head, sums=tuple(sums)) for head, sums in apart), whole("dense"), "arrays apart")


def test_parts_from_other_processes_are_added_whatever_was_asked_of_each() -> None:
    """A geometry keeps the extents of its kernel once they are computed, which must not distinguish the parts."""
    for asked in product((False, True), repeat=3):
        parts = [replace(one, geometry=replace(one.geometry)) for one in parts_of("dense")]
        assert [one.shape for one, of_shape in zip(parts, asked, strict=False) if of_shape] == [(3, 3, 8, 8)] * sum(
            asked
        )
        assert_same_bits(join([functools.reduce(operator.add, parts)]), whole("dense"), "added")
        assert_same_bits(join(parts), whole("dense"), "joined")


def test_what_a_part_holds_is_its_size() -> None:
    """As Python, and Dask, ask for it."""
    many, one = part("dense", 1, 15), part("dense", 0, 1)
    assert sys.getsizeof(many) - sys.getsizeof(one) == many.nbytes - one.nbytes == 13 * one.nbytes


def test_the_result_is_of_the_library_of_the_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first part's, however they were sent; an out is returned itself."""
    monkeypatch.setattr(
        "convgrad.arrays.libraries.like", lambda value: Theirs if isinstance(value, Theirs) else np.asarray
    )
    y = np.ones((4, 300, 2), F32)
    theirs = [partials(BIAS, Theirs(y[a : a + 2]), first=a) for a in (0, 2)]
    for parts in (theirs, theirs[::-1], [theirs[1] + theirs[0]], pickle.loads(pickle.dumps(theirs))):
        result = join(parts)
        assert isinstance(result, Theirs)
        assert result.array.tolist() == [1200, 1200]
        assert result.array.ctypes.data % LINE_BYTES == 0, "so that any library takes it as it is"
        assert all(type(array) is np.ndarray for one in parts for array in one.sums)
    assert type(join([partials(BIAS, y[:2]), theirs[1]])) is np.ndarray
    out = np.zeros(2, F32)
    assert join(theirs, out=out) is out


def test_without_kernels_there_is_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("packs")
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    with pytest.raises(convgrad.UnsupportedError, match=r"must have an order.*got numpy: .*\[P2\]$"):
        part("packs", 0, 5)
    with pytest.raises(convgrad.UnsupportedError, match=r"^join: .*no kernels here: CONVGRAD_MAX_ISA.*\[P2\]$"):
        join(parts)
