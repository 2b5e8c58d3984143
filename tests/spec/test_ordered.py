"""The order of sums, executed on whole problems: exact on integers, within its bound on normal numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad.formats import BF16, F32, F64
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import problem
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.verify.compare import compare
from tests.support.helpers import Case, assert_same_bits, operands_of, random_case


def prepared_case(seed: int, kind: str) -> tuple[Case, Prepared]:
    rng = np.random.default_rng([13, seed])
    while True:
        case = random_case(rng, axes=1 + seed % 3)
        if case.format is F64:
            continue
        prepared = prepare(case.op.name, operands_of(case, kind, seed), case.attributes, case.dtype)  # type: ignore[arg-type]
        geometry = prepared.problem.geometry
        if not isinstance(geometry, Conv) or geometry.multiply_adds < 50_000:
            return case, prepared


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(60))
def test_integers_are_exact(seed: int) -> None:
    case, prepared = prepared_case(seed, "integers")
    expected = exact_result.evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)
    assert_same_bits(evaluate_in_order(prepared.problem, prepared.operands), expected, case)


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(60))
def test_normal_numbers_keep_the_bound_of_the_height(seed: int) -> None:
    case, prepared = prepared_case(seed, "normal")
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    got = evaluate_in_order(prepared.problem, prepared.operands)
    verdict = compare(got, answer, prepared.problem, height_of(prepared.problem))
    assert verdict.ok, (case, str(verdict))


@pytest.mark.parametrize("seed", range(10))
def test_accumulate_enters_last(seed: int) -> None:
    _, prepared = prepared_case(seed, "normal")
    accumulating = replace(prepared.problem, accumulate=True)
    plain = evaluate_in_order(prepared.problem, prepared.operands)
    old = np.random.default_rng(seed).standard_normal(plain.shape).astype(plain.dtype)
    got = evaluate_in_order(accumulating, prepared.operands, old)
    answer = exact_result.evaluate(accumulating, prepared.operands, old)
    assert compare(got, answer, accumulating, height_of(accumulating)).ok
    with pytest.raises(ValueError, match="needs the old value"):
        evaluate_in_order(accumulating, prepared.operands)


WEIGHTS = [
    "BWD_W f32 NXC mb3ic1ih20oc2oh20kh3ph1",  # larger images: blocks of 12 rows
    "BWD_W f32 NXC mb40ic1ih5oc2oh5kh3ph1",  # packed: 10 images a block
    "BWD_W f32 NXC mb1ic1iw700oc1ow700kw2pw0",  # rows cut every 256
]


def by_hand(line: str, x: np.ndarray, y: np.ndarray) -> np.float32:
    """One output summed by loops that follow the words of the specification: x and y are its terms on the full grid."""

    blocks, units = BY_HAND[line]
    position, unit_sums = 0, []
    for _ in range(units):
        block_sums = []
        for length in blocks:
            block_sums.append(_chain(list(zip(x, y, strict=True))[position : position + length]))
            position += length
        unit_sums.append(_tree(block_sums))
    assert position == len(x)
    return _tree(unit_sums)


def _left_to_right(sums: list[np.float32]) -> np.float32:
    total = sums[0]
    for s in sums[1:]:
        total = np.float32(total + s)
    return total


BY_HAND = {
    WEIGHTS[0]: ([240, 160], 3),
    WEIGHTS[1]: ([250] * 4, 1),
    WEIGHTS[2]: ([256, 256, 188], 1),
}


@pytest.mark.parametrize("line", WEIGHTS)
def test_the_terms_of_a_weight_gradient_run_over_images_then_positions(line: str) -> None:
    one = problem(line)
    conv = one.geometry
    assert isinstance(conv, Conv)
    rng = np.random.default_rng(0)  # sums round in f32 but are exact in float64, so that loops can check them
    src, dst = ((rng.integers(-4095, 4096, shape) / 8).astype(np.float32) for shape in (conv.src_shape, conv.dst_shape))
    got = evaluate_in_order(one, [src, dst])
    padded = np.pad(src, [(0, 0), (0, 0), *((a.pad_begin, a.pad_end) for a in conv.axes)])
    for k in np.ndindex(*conv.kernel):
        window = tuple(slice(t, t + a.dst) for t, a in zip(k, conv.axes, strict=True))
        x = padded[(slice(None), 0, *window)].ravel()
        y = dst[:, 0].ravel()
        assert got[(0, 0, *k)] == by_hand(line, x, y), k


DATA = [
    "FWD_D f32 NXC mb1ic300iw3oc5ow3kw2pw1",  # channels cut every 256 within their tap
    "FWD_B f32 NXC mb1ic60iw5oc5ow5kw9pw4",  # four taps a block
    "FWD_D f32 NXC mb1ic130ih3iw6oc5oh3ow1kh3kw6ph1",  # eighteen blocks of a tap: two levels of the tree
    "FWD_D f32 NXC mb1ic16iw9oc4ow9kw5pw2",  # each tap a tree of its own
    "FWD_D f32 NXC mb1ic16iw9oc5ow9kw5pw2",  # not with more results,
    "FWD_D f32 NXC mb1ic15iw9oc4ow9kw5pw2",  # nor with fewer terms,
    "FWD_D f32 NXC g2mb1ic32iw9oc4ow9kw5pw2",  # nor in groups
    "BWD_D f32 NXC mb1ic4iw9oc16ow9kw5pw2",
    "BWD_D f32 NXC mb1ic5iw9oc16ow9kw5pw2",
    "BWD_D f32 NXC mb1ic4iw9oc15ow9kw5pw2",
    "BWD_D f32 NXC g2mb2ic6ih7iw6oc8oh3ow3kh4kw2sh2sw2dh1ph2pw1",
    "FWD_B bf16 NXC mb2ic7ih5iw4oc6oh3ow4kh3kw3sh2ph1pw1",  # pairs, and an odd channel alone
    "FWD_D bf16 NXC mb1ic37iw9oc3ow9kw5pw2",
    "BWD_D bf16 NXC mb1ic5iw3oc301ow3kw2pw1",
    "BWD_D bf16 NXC g3mb1ic6iw9oc15ow5kw3sw2pw1",
    "FWD_D f16 NXC mb1ic7iw9oc6ow9kw5pw2",  # of f16 operands there are no pairs
]


def by_definition(one: Problem, operands: list[np.ndarray], n: int, result: int, at: tuple[int, ...]) -> np.float32:
    """One value of a forward or a data gradient, summed by loops that follow the words of the specification."""
    conv = one.geometry
    assert isinstance(conv, Conv)
    forward = one.solves_for == "dst"
    data, weights = operands[:2]
    results = (conv.dst_channels if forward else conv.src_channels) // conv.groups
    channels = (conv.src_channels if forward else conv.dst_channels) // conv.groups
    group = result // results
    listed = list(range(channels))
    most, split = 256, one.operand_format is BF16 and channels >= 32
    if split:
        most = 32
    elif one.operand_format is BF16:
        listed = [c for first in range(0, channels, 2) for c in (first + 1, first) if c < channels]
    trees: list[list[list[tuple[np.float32, np.float32]]]] = [[]]
    block = _two_chains if split else _chain
    sizes: list[int] = []  # of the blocks of the last tree, on the full grid
    for k in np.ndindex(*conv.kernel):
        place = []
        for axis, p, tap in zip(conv.axes, at, k, strict=True):
            reach = tap * axis.dilation - axis.pad_begin
            met, apart = (p * axis.stride + reach, 0) if forward else divmod(p - reach, axis.stride)
            place.append(met if apart == 0 and 0 <= met < (axis.src if forward else axis.dst) else None)
        if results <= 4 and channels >= 16 and conv.groups == 1 and sizes:
            trees, sizes = [*trees, []], []
        for start in range(0, channels, most):
            part = listed[start : start + most]
            if split or channels > most or not sizes or sizes[-1] + channels > most:
                trees[-1].append([])
                sizes.append(0)
            sizes[-1] += len(part)
            if None in place:
                continue
            for c in part:
                w = weights[(result, c, *k)] if forward else weights[(group * channels + c, result % results, *k)]
                trees[-1][-1].append((data[(n, group * channels + c, *place)], w))
    total = _tree([_tree([block(terms) for terms in tree]) for tree in trees]) + np.float32(0)
    return total + operands[2][result] if len(operands) > 2 else total


def _chain(terms: list[tuple[np.float32, np.float32]]) -> np.float32:
    total = np.float32(0)
    for x, y in terms:
        total = np.float32(np.float64(x) * np.float64(y) + np.float64(total))  # exact in float64 on these numbers
    return total


def _two_chains(terms: list[tuple[np.float32, np.float32]]) -> np.float32:
    return _chain(terms[::2]) + _chain(terms[1::2])


def _tree(sums: list[np.float32]) -> np.float32:
    while len(sums) > 1:
        sums = [_left_to_right(sums[i : i + 16]) for i in range(0, len(sums), 16)]
    return sums[0]


@pytest.mark.parametrize("line", DATA)
def test_the_terms_of_the_others_run_over_taps_then_channels(line: str) -> None:
    one = replace(problem(line), output_format=F32)
    rng = np.random.default_rng(0)
    operands = [  # numbers of every format, far enough apart that f32 sums are rounded and float64 ones are not
        (rng.integers(-127, 128, shape) * 2.0 ** rng.integers(0, 9, shape)).astype(np.float32)
        for shape in canonical_shapes(one)[:-1]
    ]
    got = evaluate_in_order(one, operands)
    for n, channel, *at in np.ndindex(*got.shape):
        expected = by_definition(one, operands, n, channel, tuple(at))
        assert got[(n, channel, *at)].tobytes() == expected.tobytes(), (n, channel, at)
