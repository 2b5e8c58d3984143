"""The order of sums, executed on whole problems: exact on integers, within its bound on normal numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad.formats import F64
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import problem
from convgrad.spec import oracle
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.verify.compare import compare
from convgrad.verify.fill import fill
from helpers import Case, assert_same_bits, operands_of, random_case


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


@pytest.mark.parametrize("seed", range(60))
def test_integers_are_exact(seed: int) -> None:
    case, prepared = prepared_case(seed, "integers")
    expected = oracle.evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)
    assert_same_bits(evaluate_in_order(prepared.problem, prepared.operands), expected, case)


@pytest.mark.parametrize("seed", range(60))
def test_normal_numbers_keep_the_bound_of_the_height(seed: int) -> None:
    case, prepared = prepared_case(seed, "normal")
    answer = oracle.evaluate(prepared.problem, prepared.operands)
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
    answer = oracle.evaluate(accumulating, prepared.operands, old)
    assert compare(got, answer, accumulating, height_of(accumulating)).ok
    with pytest.raises(ValueError, match="needs the old value"):
        evaluate_in_order(accumulating, prepared.operands)


LINES = [
    "BWD_W f32 NXC mb3ic1ih20oc2oh20kh3ph1",  # larger images: blocks of 12 rows
    "BWD_W f32 NXC mb40ic1ih5oc2oh5kh3ph1",  # packed: 10 images a block
    "BWD_W f32 NXC mb1ic1iw700oc1ow700kw2pw0",  # rows cut every 256
    "FWD_D f32 NXC mb1ic300iw3oc2ow3kw2pw0",  # channels cut every 256 within their tap
    "FWD_B f32 NXC mb1ic60iw5oc2ow5kw9pw4",  # four taps a block
    "BWD_D f32 NXC mb1ic3iw9oc20ow9kw5pw2",  # each tap a tree of its own
    "BWD_D bf16 NXC g2mb1ic4iw9oc80ow9kw7pw3",
]


def by_hand(line: str, x: np.ndarray, y: np.ndarray) -> np.float32:
    """One output summed by loops that follow the words of the specification: x and y are its terms on the full grid."""

    def chain(terms: list[int]) -> np.float32:
        total = np.float32(0)
        for t in terms:
            total = np.float32(np.float64(x[t]) * np.float64(y[t]) + np.float64(total))  # exact on these small numbers
        return total

    def tree(sums: list[np.float32]) -> np.float32:
        while len(sums) > 1:
            sums = [_left_to_right(sums[i : i + 16]) for i in range(0, len(sums), 16)]
        return sums[0]

    blocks, units = BY_HAND[line]
    position, unit_sums = 0, []
    for _ in range(units):
        block_sums = []
        for length in blocks:
            block_sums.append(chain(list(range(position, position + length))))
            position += length
        unit_sums.append(tree(block_sums))
    assert position == len(x)
    return tree(unit_sums)


def _left_to_right(sums: list[np.float32]) -> np.float32:
    total = sums[0]
    for s in sums[1:]:
        total = np.float32(total + s)
    return total


BY_HAND = {
    LINES[0]: ([240, 160], 3),
    LINES[1]: ([250] * 4, 1),
    LINES[2]: ([256, 256, 188], 1),
    LINES[3]: ([256, 44] * 2, 1),
    LINES[4]: ([240, 240, 60], 1),
    LINES[5]: ([20], 5),
    LINES[6]: ([240, 40], 1),
}


@pytest.mark.parametrize("line", LINES[:3])
def test_the_terms_of_a_weight_gradient_run_over_images_then_positions(line: str) -> None:
    one = problem(line)
    conv = one.geometry
    assert isinstance(conv, Conv)
    src, dst = (a.astype(np.float32) for a in _few_bits(one, conv))
    got = evaluate_in_order(one, [src, dst])
    rank = len(conv.axes)
    padded = np.pad(src, [(0, 0), (0, 0), *((a.pad_begin, a.pad_end) for a in conv.axes)])
    for k in np.ndindex(*conv.kernel):
        window = tuple(slice(t, t + a.dst) for t, a in zip(k, conv.axes, strict=True))
        x = padded[(slice(None), 0, *window)].ravel()
        y = dst[:, 0].ravel()
        assert got[(0, 0, *k)] == by_hand(line, x, y), (k, rank)


@pytest.mark.parametrize("line", LINES[3:6])
def test_the_terms_of_the_others_run_over_taps_then_channels(line: str) -> None:
    one = problem(line)
    conv = one.geometry
    assert isinstance(conv, Conv)
    (axis,) = conv.axes
    operands = [a.astype(np.float32) for a in _few_bits(one, conv)]
    got = evaluate_in_order(one, operands)
    bias = operands[2] if len(operands) > 2 else np.zeros(conv.dst_channels, np.float32)
    data, weights = operands[:2]
    for at in range(got.shape[2]):
        x, y = [], []
        for k in range(axis.kernel):
            offset = at + k - axis.pad_begin if one.solves_for == "dst" else at - k + axis.pad_begin
            exists = 0 <= offset < data.shape[2]
            for c in range(data.shape[1]):
                x.append(data[0, c, offset] if exists else np.float32(0))
                taken = weights[0, c, k] if one.solves_for == "dst" else weights[c, 0, k]
                y.append(taken if exists else np.float32(0))
        extra = bias[0] if one.solves_for == "dst" else np.float32(0)
        assert got[0, 0, at] == np.float32(by_hand(line, np.array(x), np.array(y)) + extra)


def _few_bits(one: object, conv: Conv) -> list[np.ndarray]:
    """Canonical operands whose sums round in f32 but are exact in float64, so that loops can check them."""
    rng = np.random.default_rng(0)
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape, "bias": (conv.dst_channels,)}
    operands = one.operands  # type: ignore[attr-defined]
    return [(rng.integers(-4095, 4096, shapes[t]) / 8).astype(np.float32) for t in operands]


@pytest.mark.parametrize("line", LINES)
def test_lines_keep_the_bound(line: str) -> None:
    one = problem(line)
    conv = one.geometry
    assert isinstance(conv, Conv)
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape, "bias": (conv.dst_channels,)}
    canonical = replace(one, layouts=("NCX",) * len(one.layouts))
    operands = fill(canonical, [shapes[t] for t in one.operands], "normal", 0)
    answer = oracle.evaluate(one, operands)
    assert compare(evaluate_in_order(one, operands), answer, canonical, height_of(one)).ok
