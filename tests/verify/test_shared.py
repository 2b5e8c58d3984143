"""Sums whose terms differ by less than the sum's last place have common errors, which are no evidence of a defect."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad.formats import ACCUMULATIONS, round_to
from convgrad.verify import check


@pytest.mark.parametrize("accumulation", ["f32", "tf32", "f16"])
@pytest.mark.parametrize("seed", range(4))
def test_nearly_equal_values(accumulation: str, seed: int) -> None:
    """All rows of src are nearly 1. Weights are small, except for some that make the sums' last places coarse."""
    rng, fmt = np.random.default_rng(seed), ACCUMULATIONS[accumulation]
    src = (1 + 1e-4 * rng.standard_normal((100, 1, 100))).astype(np.float32)
    weights = rng.standard_normal((1, 100, 40), np.float32)
    weights *= np.where(rng.random(weights.shape) < 0.02, np.float32(100), np.float32(0.01))
    sums = np.zeros((100, 40))
    for term in range(100):
        product = src[:, 0, term, None].astype(np.float64) * weights[0, term]
        sums = round_to(sums + product, fmt)
    result = sums[:, None].astype(np.float32)
    assert check("Convolution", result, src, weights, accumulation=accumulation).outcome in ("ok", "undecided")
