"""Forwards and data gradients, dense, on today's tile: the bits of the specified order on every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convgrad.formats import F32
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import problem
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import OPERATORS
from convgrad.spec.order import Order
from convgrad.spec.ordered import evaluate_in_order
from data_on_tile import blocks_of, computed
from engine_helpers import HOST
from helpers import Case, assert_same_bits, operands_of, random_case

LINES = [
    "FWD_B f32 NXC mb2ic17ih9iw8oc33oh9ow8kh3kw3ph1pw1",  # a stretch for each of nine tap sets; lanes left over
    "FWD_D f32 NXC mb1ic300iw5oc15ow4kw2",  # taps longer than a block
    "FWD_D f32 NXC mb1ic257ih2iw3oc5oh2ow3kh3kw3ph1pw1",
    "FWD_B f32 NXC mb3ic64ih4iw5oc40oh4ow5kh1kw1",  # one tap
    "FWD_D f32 NXC mb1ic64iw9oc3ow9kw5pw2",  # tap by tap
    "FWD_D f32 NXC mb1ic130ih5iw7oc16oh5ow2kh3kw6ph1",  # eighteen blocks: two levels of the tree
    "FWD_D f32 NXC mb2ic5id5ih4iw6oc9od3oh4ow2kd2kh3kw2sd2sw3dh1dd1pd1ph2",  # strides, dilations, pads, three axes
    "FWD_D f32 NXC mb1ic8iw4oc8ow9kw2sw2pw7",  # positions that meet nothing, on both sides
    "BWD_D f32 NXC mb2ic17ih8iw9oc31oh4ow5kh3kw3sh2sw2ph1pw1",  # phases
    "BWD_D f32 NXC mb1ic16ih11oc4oh3kh2sh4",  # phases that no tap meets, and rows behind the last
    "BWD_D f32 NXC mb1ic33iw13oc7ow3kw4sw3dw1",  # a stride and a dilation
    "BWD_D f32 NXC mb1ic3ih7iw6oc20oh7ow6kh3kw3ph1pw1",
    "deconv FWD_B f32 NXC mb2ic270ih3oc6oh6kh4sh2ph1",
]


def assert_on_tile(one: Any, operands: list[np.ndarray], rows: int, vectors: int) -> None:
    expected = evaluate_in_order(one, operands)
    for isa in HOST:
        assert_same_bits(np.ascontiguousarray(computed(one, operands, isa, rows, vectors)), expected, (isa, one))


@pytest.mark.parametrize("kind", ["integers", "normal"])
@pytest.mark.parametrize("line", LINES)
def test_lines_have_the_bits_of_the_order(line: str, kind: str) -> None:
    one, rng = problem(line), np.random.default_rng(len(line))
    conv = one.geometry
    assert isinstance(conv, Conv)
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape, "bias": (conv.dst_channels,)}
    if one.solves_for == "src":
        shapes["bias"] = (conv.src_channels,)
    draw = (lambda s: rng.integers(-4, 5, s)) if kind == "integers" else rng.standard_normal
    operands = [draw(shapes[tensor]).astype(np.float32) for tensor in one.operands]
    assert_on_tile(one, operands, *((3, 1), (2, 2))[len(line) % 2])


def dense(seed: int) -> Prepared:
    """A random forward or data gradient of f32 without groups."""
    rng = np.random.default_rng([31, seed])
    ops = [op for op in OPERATORS if op.solves_for in ("dst", "src")]
    while True:
        case: Case = random_case(rng, ops[seed % len(ops)], 1 + seed % 3)
        if case.format is F32 and case.attributes.get("groups", 1) == 1 and case.dtype is None:
            prepared = prepare(case.op.name, operands_of(case, "normal", seed), case.attributes, case.dtype)  # type: ignore[arg-type]
            geometry = prepared.problem.geometry
            assert isinstance(geometry, Conv)
            if 0 < geometry.multiply_adds < 20_000:
                return prepared


@pytest.mark.parametrize("seed", range(24))
def test_random_ones_have_the_bits_of_the_order(seed: int) -> None:
    prepared = dense(seed)
    assert_on_tile(prepared.problem, list(prepared.operands), 1 + seed % 4, 1)


def test_blocks_of_an_order_are_lines() -> None:
    """By hand: whole taps, parts of one, and taps that are units."""
    assert blocks_of(Order(1, 3, 100)) == [[(0, 0, 100), (1, 0, 100)], [(2, 0, 100)]]
    assert blocks_of(Order(1, 2, 300)) == [[(0, 0, 256)], [(0, 256, 300)], [(1, 0, 256)], [(1, 256, 300)]]
    assert blocks_of(Order(2, 1, 20)) == [[(0, 0, 20)], [(1, 0, 20)]]
