"""Numbers of every format are widened exactly, and sums rounded to any as the specification says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convgrad.formats import FORMATS, store
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.spec.ordered import evaluate_in_order
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import HOST, empty, plans_for, run_plan
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers


@tiers("output, isa", ALL_TYPES, HOST, every=7)
def test_rounding_to_every_output(output: str, isa: str) -> None:
    one = replace(problem("BWD_W f32 NXC mb1ic40iw1oc40ow1kw1pw0"), output_format=FORMATS[output])
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 40, np.uint32)
    bits[:8] = [0x7FC00001, 0xFF800001, 0x7F800000, 0x80000000, 0x00000001, 0x3F808000, 0x3F818000, 0x477FF000]
    values = bits.view(np.float32).reshape(1, 40, 1)
    ones = np.ones((1, 40, 1), np.float32)
    for operands in ([values, ones], [ones, values]):
        expected = evaluate_in_order(one, operands)
        for plan in plans_for(one, operands, empty(one), ISAS[isa])[::37]:
            assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)


@pytest.mark.every(3)
@pytest.mark.parametrize("output", ["f8_e4m3", "f8_e5m2"])
@pytest.mark.parametrize("isa", HOST)
def test_every_number_of_8_bits_and_what_lies_between(output: str, isa: str) -> None:
    """The numbers, the middles of neighbours, the f32 numbers next to those, and what is beyond the largest."""
    fmt = FORMATS[output]
    numbers = np.sort(np.arange(256, dtype=np.uint8).view(fmt.dtype).astype(np.float32))
    numbers = np.append(numbers[np.isfinite(numbers)], np.float32(fmt.largest * (1 + fmt.unit)))
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 2.0**-149, -0.0], np.float32)
    values = np.concatenate([numbers, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), beyond])
    values = values.astype(np.float32).reshape(1, -1, 1)
    one = replace(problem(f"BWD_W f32 NXC mb1ic{values.size}iw1oc1ow1kw1pw0"), output_format=fmt)
    operands = [values, np.ones((1, 1, 1), np.float32)]
    expected = store(values.astype(np.float64) + 0.0, fmt).reshape(1, values.size, 1)
    for plan in plans_for(one, operands, empty(one), ISAS[isa])[::37]:
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)


@tiers("fmt, isa, data_format", ["bf16", "f8_e4m3", "f16", "f8_e5m2"], HOST, ["NXC", "NCX"], every=7)
def test_every_narrow_value_is_widened_exactly(fmt: str, isa: str, data_format: str) -> None:
    bits = FORMATS[fmt].bits
    count = 1 << 8 * bits.itemsize
    one = problem(f"BWD_W {fmt} {data_format} mb1ic{count // 16}iw16oc1ow1kw16pw0")
    one = replace(one, output_format=FORMATS["f32"])
    values = np.arange(count, dtype=bits).view(FORMATS[fmt].dtype).reshape(1, count // 16, 16)
    if data_format == "NXC":
        values = np.ascontiguousarray(values.swapaxes(1, 2)).swapaxes(1, 2)
    operands = [values, np.ones((1, 1, 1), values.dtype)]
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32) + np.float32(0)
    expected = np.ascontiguousarray(np.where(np.isnan(expected), np.float32(np.nan), expected))
    for plan in plans_for(one, operands, empty(one), ISAS[isa])[::13]:
        assert_same_bits(run_plan(plan, one, operands, empty(one)), expected, plan)
