"""The page on single samples: its programs run, what they return is what it says, and it has every function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import convgrad
from helpers import assert_same_bits

PAGE = (Path(__file__).parents[1] / "docs" / "per_sample.md").read_text(encoding="utf-8")


def test_its_programs_run() -> None:
    """Their assertions are of explicit gradients; what is clipped is theirs too, by weights and bias together."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, "per_sample.md", "exec"), names)
    assert sum(block.count("assert") for block in blocks) == 3
    each, src, diff_dst, layer = (names[name] for name in ("each", "src", "diff_dst", "layer"))
    squares = np.sum(each.astype(float) ** 2, axis=(1, 2, 3, 4)) + np.sum(diff_dst.sum((1, 2)) ** 2.0, axis=1)
    scale = convgrad.clip_scales(squares, 100.0)
    assert names["clipped"] == (squares > 100.0**2).sum() > 0
    factors = scale[:, None, None, None]
    ((weights, bias),) = names["sums"]
    expected = convgrad.convolution_backward_weights(
        src * factors, diff_dst, names["shape"], **layer
    )  # the smaller one
    assert_same_bits(weights, expected, "weights")
    assert_same_bits(bias, convgrad.bias_add_backward(diff_dst * factors), "bias")


def test_it_names_every_function() -> None:
    words = ("per_sample", "weighted", "clip")
    named = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert named == {name for name in convgrad.__all__ if name.startswith(words)}
