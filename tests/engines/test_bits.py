"""The generated engine gives the bits of the specified order: on any problem, layout, stride, type and plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.ordered import evaluate_in_order
from tests.support.engine_helpers import HOST, Array, empty, made, plans_for, prepared_weights, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

PLAIN, ACCUMULATED, ODD = "plain", "accumulated", "odd strides"


@tiers("seed, way, isa", range(130), (PLAIN, ACCUMULATED, ODD), HOST, every=197)
def test_random_problems(seed: int, way: str, isa: str) -> None:
    """Three plans of each: into NaN, onto old values, which enter last, or with any strides of operands and output."""
    case, prepared = prepared_weights(seed)
    one, operands = replace(prepared.problem, accumulate=way == ACCUMULATED), prepared.operands
    old = np.random.default_rng(seed).standard_normal(empty(one).shape).astype(one.output_format.dtype)
    expected = evaluate_in_order(one, operands, old)
    out = empty(one)
    if way == ODD:
        operands = [odd_views(array, seed + at) for at, array in enumerate(operands)]
        out = odd_views(np.zeros(expected.shape, expected.dtype), seed + 5)
    found = plans_for(one, operands, out, ISAS[isa], threads=1 + seed % 3, l2_bytes=1 << (10 + seed % 11))
    for plan in found[seed % 2 :: len(found) // 3 + 1]:
        out[...] = old if way == ACCUMULATED else np.nan
        assert_same_bits(run_plan(plan, one, operands, out), expected, (case, plan))


LINES = [
    "BWD_W f32 NXC mb3ic15ih20oc17oh20kh3ph1",  # larger images: blocks of 12 rows; around one vector
    "BWD_W f32 NCX mb40ic31ih5oc33oh5kh3ph1",  # packed: 10 images a block
    "BWD_W bf16 NXC mb1ic16iw700oc3ow700kw2pw0",  # rows cut every 256
    "BWD_W f16 NCX mb1ic1iw5000oc5ow5000kw1pw0",  # 20 blocks: two levels of the tree
    "BWD_W f32 NXC mb19ic3ih17oc2oh17kh1ph0",  # 19 units: two levels above
    "BWD_W f32 NXC mb2ic32ih9oc64oh9kh1ph0",  # pointwise, full vectors
    "BWD_W f32 NXC mb2ic14ih9oc13oh5kh1sh2ph0",  # one tap, strided
    "BWD_W f32 NCX mb2ic20ih40oc37oh20kh1sh2ph0",  # positions 2 apart, transposed
    "BWD_W bf16 NCX mb2ic18ih49oc35oh17kh1sh3ph0",  # positions 3 apart
    "BWD_W f32 NXC g3mb2ic42ih6oc39oh6kh3ph1",
    "BWD_W f32 NXC mb2ic65ih4oc29oh9kh3ph9dh4",  # taps that see padding only
    "BWD_W f32 NXC mb300ic2iw1oc2ow1kw1pw0",
]


@tiers("line, isa, first", LINES, HOST, range(17), every=211)
def test_lines_under_every_plan(line: str, isa: str, first: int) -> None:
    """Every 17th plan from the ``first`` on."""
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    for l2_bytes in (1 << 10, 1 << 20):
        for plan in plans_for(one, operands, empty(one), ISAS[isa], 4, l2_bytes)[first::17]:
            got = run_plan(plan, one, operands, empty(one))
            assert_same_bits(got, expected, (line, str(plan)))


@pytest.mark.every(4)
@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("extents", [(), (300,), (9, 31), (3, 0), (5, 6, 7)])
def test_bias_gradients(extents: tuple[int, ...], fmt: str) -> None:
    for data_format in ("NXC", "NCX"):
        for batch, channels in ((1, 1), (3, 67), (19, 16)):
            rng = np.random.default_rng(batch)
            shape = from_canonical((batch, channels, *extents), data_format)
            dst = rng.standard_normal(shape).astype(FORMATS[fmt].dtype)
            prepared = prepare("BiasAddBackward", (dst,), {"data_format": data_format})
            one, out = prepared.problem, np.full(channels, np.nan, dst.dtype)
            choice = engines.execute(one, prepared.operands, out, 2)
            assert choice.engine == ("generated" if dst.size else "numpy")
            assert_same_bits(out, evaluate_in_order(one, prepared.operands), (shape, data_format))


def odd_views(array: Array, seed: int) -> Array:
    """The same values behind negative, large, or unaligned strides."""
    rng = np.random.default_rng(seed)
    raw = np.full(tuple(3 * n + 1 for n in array.shape), np.nan, array.dtype)
    if seed % 3 == 2:  # one byte off
        raw = np.zeros(raw.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(raw.shape)
        raw[...] = np.nan
    steps = [int(rng.choice([-3, -1, 1, 2])) for _ in array.shape]
    ends = [slice(None) if s > 0 else slice(None, None, -1) for s in steps]
    seen = raw[tuple(slice(0, abs(s) * n, abs(s)) for s, n in zip(steps, array.shape, strict=True))][tuple(ends)]
    seen[...] = array
    return seen


PADDED = (  # one tap, which reads padding; taps that would be channels if the last one read no padding
    "BWD_W f32 NXC mb2ic3ih5oc4oh7kh1ph1",
    "BWD_W f32 NXC mb2ic2iw9oc3ow9kw3pw0",
)


@pytest.mark.parametrize("line", PADDED)
def test_simplified_axes_on_padding(line: str) -> None:
    one, operands = made(line)
    plan = plans_for(one, operands, empty(one), ISAS[HOST[0]])[0]
    assert_same_bits(run_plan(plan, one, operands, empty(one)), evaluate_in_order(one, operands), line)


def test_zero_strides() -> None:
    one = problem("BWD_W f32 NXC mb2ic17ih6oc18oh6kh3ph1")
    conv = one.geometry
    assert isinstance(conv, Conv)
    src = np.broadcast_to(np.float32(1.5), conv.src_shape)
    dst = np.broadcast_to(np.linspace(0, 1, 18, dtype=np.float32).reshape(1, 18, 1, 1), conv.dst_shape)
    expected = evaluate_in_order(one, [src, dst])
    for plan in plans_for(one, [src, dst], empty(one), ISAS[HOST[0]])[::11]:
        assert_same_bits(run_plan(plan, one, [src, dst], empty(one)), expected, plan)


SIZES = [1, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 49, 63, 65]


@tiers("fmt, data_format, isa", ["f32", "bf16", "f16"], ["NXC", "NCX"], HOST, every=17)
def test_sizes_around_the_lanes(fmt: str, data_format: str, isa: str) -> None:
    rng = np.random.default_rng(3)
    for channels, others in zip(SIZES, rng.permutation(SIZES), strict=True):
        line = f"BWD_W {fmt} {data_format} mb2ic{channels}iw{others}oc{others}ow{others}kw3pw1"
        one, operands = made(line)
        expected = evaluate_in_order(one, operands)
        for plan in plans_for(one, operands, empty(one), ISAS[isa])[:12:6]:
            got = run_plan(plan, one, operands, empty(one))
            assert_same_bits(got, expected, (line, str(plan)))
