"""Each stride with each dilation, padding and number of taps, by every kernel that supports it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from convgrad.engines.llvm.execute import executable_of
from convgrad.notation import problem, read, write
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import plans, view_of
from convgrad.spec.geometry import Axis, Conv, effective_kernel
from convgrad.spec.ordered import evaluate_in_order
from tests.support.classes import line_of
from tests.support.engine_helpers import HOST
from tests.support.forward_problems import posed, unlike
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

CHANNELS = {
    "dense": (1, 17, 33),
    "thin": (1, 8, 3),
    "few": (1, 3, 16),
    "depthwise": (16, 16, 16),
    "groups": (4, 16, 32),
}
GEOMETRIES = list(product((1, 2, 3, 5), (1, 2, 3), (0, 1, 2, 5), (1, 2, 3)))  # stride, dilation, padding, taps
DIRECTIONS = ("FWD_D", "BWD_D", "BWD_W")
SRC = 23  # positions: more than a vector has lanes


def axis_of(stride: int, dilation: int, padding: int, taps: int) -> Axis:
    """Return an axis whose padding at the end is one less, and whose last positions may meet no tap."""
    end = max(0, padding - 1)
    dst = (SRC + padding + end - effective_kernel(taps, dilation)) // stride + 1
    return Axis(SRC, dst, taps, stride, dilation, padding, end)


@tiers(
    "geometry, channels, data, direction, fmt, first",
    product(GEOMETRIES, CHANNELS.values(), ("NXC", "NCX"), DIRECTIONS, ("f32", "bf16"), range(2)),
    every=2467,
)
def test_bits(
    geometry: tuple[int, ...], channels: tuple[int, int, int], data: str, direction: str, fmt: str, first: int
) -> None:
    """On the last axis or on the one before, with biases and old values; by every second kernel, at some height."""
    number = sum(geometry) + GEOMETRIES.index(geometry)  # deals the axis, the height, the instruction set
    axes = [axis_of(*geometry), Axis(5, 5, 3, 1, 1, 1, 1)]
    conv = Conv(2, *channels, (axes[number % 2], axes[1 - number % 2]))
    if direction == "BWD_W":
        one = problem(write(replace(read(line_of(conv, fmt, data, number % 5 == 0)), direction=direction)))
    else:
        types, role = (fmt, (fmt, "f32")[number % 2]), {"FWD_D": "dst", "BWD_D": "src"}[direction]
        lies = f"{data} {('XIO', 'OIX')[number // 2 % 2]}"
        one = posed(conv, role, number % 5 == 0, types, lies, accumulate=number % 3 == 1, bias=True)
    operands = operands_of(one, np.random.PCG64(3), subnormal=number % 3 == 0)
    old = values(shape_of(one, one.output), one.output_format, np.random.PCG64(4))
    expected = evaluate_in_order(one, operands, old)
    view = view_of(one, [array.strides for array in operands], old.strides)
    isa = HOST[number % len(HOST)]
    found = unlike(plans(one, view, Machine(ISAS[isa]), 1), number)
    for plan in found[first::2] or found:
        out = old.copy()
        executable_of(plan, one, operands, out).execute(operands, out)
        assert_same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected), (isa, str(plan.spec), one))
