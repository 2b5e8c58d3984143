"""The NumPy engine's memory beside operands and result: a few blocks, however large the problem."""

from __future__ import annotations

import tracemalloc

import numpy as np

import convgrad
from convgrad.engines.numpy import BLOCK_BYTES
from tests.support.tiers import tiers

PROBLEMS = {
    "long rows": ("Convolution", (1, 1_000_000, 4), (3, 4, 4)),
    "one wide image": ("Convolution", (1, 2, 400_000, 4), (1, 3, 4, 4)),
    "volume": ("Convolution", (1, 40, 60, 80, 8), (3, 3, 3, 8, 8)),
    "many images": ("Convolution", (100_000, 5, 5), (3, 5, 4)),
    "stride beyond the kernel": ("Convolution", (1, 1_000_000, 4), (2, 4, 4)),
}


@tiers("name, dtype", list(PROBLEMS), [np.float32, np.float16], every=7)
def test_a_few_blocks(name: str, dtype: type) -> None:
    operator, shape, weights_shape = PROBLEMS[name]
    axes = len(shape) - 2
    strides = [5 if "stride" in name else 1] * axes
    attributes = {"strides": strides, "dilations": [1] * axes}
    src, weights = np.ones(shape, dtype), np.ones(weights_shape, dtype)
    dst = convgrad.run(operator, src, weights, **attributes)
    diff_src, diff_weights = np.empty_like(src), np.empty_like(weights)
    tracemalloc.start()
    try:
        convgrad.run(operator, src, weights, out=dst, **attributes)
        convgrad.run(f"{operator}BackwardData", dst, weights, src.shape, out=diff_src, **attributes)
        convgrad.run(f"{operator}BackwardWeights", src, dst, weights_shape, out=diff_weights, **attributes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * BLOCK_BYTES
