"""Right results in the range of subnormal numbers, where sums and results have fewer bits, are not called otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convgrad.formats import ACCUMULATIONS, BF16, F16, F32, Format, round_to, store
from convgrad.verify import check, exact


@pytest.mark.parametrize("power", range(-25, -9))
def test_subnormal_results_have_fewer_bits(power: int) -> None:
    """Results of f16 below 2^-14 are on coarser grids, although they are right."""
    rng = np.random.default_rng(-power)
    src, weights = rng.standard_normal((2, 20, 20, 1)), rng.standard_normal((1, 1, 1, 2)) * 2.0**power
    operands = (src.astype(np.float16), weights.astype(np.float16))
    right = exact("Convolution", *operands)
    assert check("Convolution", right, *operands).outcome == "ok"
    if power > -12:
        coarse = round_to(right.astype(np.float64), BF16).astype(np.float16)
        assert check("Convolution", coarse, *operands).outcome == "wrong"


@pytest.mark.parametrize("accumulation", [F32, F16])
@pytest.mark.parametrize("seed", range(12))
def test_equal_products_that_underflow_have_equal_errors(seed: int, accumulation: Format) -> None:
    rng, unit = np.random.default_rng(seed), 2.0 ** (np.log2(accumulation.tiny) // 2)
    src = store(np.where(rng.random((2, 60, 4)) < 0.02, 1.37, 1.0) * unit * 2.0 ** rng.integers(1, 6), accumulation)
    diff_dst = store(rng.choice([0.3, -0.7], (2, 60, 6)) * unit * 2.0 ** rng.integers(0, 4), accumulation)
    total = np.zeros((4, 6))
    for x, y in zip(*(array.astype(np.float64).reshape(120, -1) for array in (src, diff_dst)), strict=True):
        total = round_to(total + round_to(np.outer(x, y), accumulation), accumulation)
    result, kept = store(total[None], accumulation), accumulation.name
    arguments: dict[str, Any] = {"weights_shape": (1, 4, 6), "accumulation": kept}
    assert check("ConvolutionBackwardWeights", result, src, diff_dst, **arguments).outcome == "ok"


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "f8_e5m2"])
@pytest.mark.parametrize("fused", [False, True])
def test_bias_and_old_value_that_underflow(name: str, fused: bool) -> None:
    """In a format of sums with a larger smallest number than their own."""
    fmt, rng = ACCUMULATIONS[name], np.random.default_rng(len(name) + fused)
    src, weights, bias, old = (rng.standard_normal(shape) for shape in ((1, 500, 1), (1, 1, 8), (8,), (1, 500, 8)))
    operands = [a.astype(np.float32) for a in (src * 2.0**20 * fmt.tiny, weights * 2.0**-18, bias * 9 * fmt.tiny)]
    before = (old * 9 * fmt.tiny).astype(np.float32)
    x, y, first = (operand.astype(np.float64) for operand in operands)
    products = x * y if fused else round_to(x * y, fmt)
    sums = round_to(round_to(round_to(first, fmt) + products, fmt) + round_to(before.astype(np.float64), fmt), fmt)
    verdict = check("Convolution", sums.astype(np.float32), *operands, old=before, accumulation=name)
    assert verdict.outcome != "wrong", str(verdict)
