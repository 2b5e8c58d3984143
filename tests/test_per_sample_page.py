"""The page on single samples: its programs run, what they return is what it says, and it has every function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from helpers import assert_same_bits

PAGE = (Path(__file__).parents[1] / "docs" / "per_sample.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_its_programs_run() -> None:
    """Their assertions are of explicit gradients; what is clipped is theirs too, by weights and bias together."""
    names: dict[str, Any] = {}
    blocks = [block for block in BLOCKS if "import torch" not in block]
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


@pytest.mark.long
def test_its_pytorch_program_has_the_gradients_of_autograd() -> None:
    """On integers, which nothing rounds: each sample's norm, and where none is clipped the gradients themselves."""
    torch = pytest.importorskip("torch")
    names: dict[str, Any] = {"convgrad": convgrad}
    (block,) = [block for block in BLOCKS if "import torch" in block]
    exec(compile(block, "per_sample.md", "exec"), names)
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(4, 3, 3, 2), nn.Flatten())
    model.append(nn.Linear(12, 2))
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.integers(-2, 3, (3, 2, 6, 6)).astype(np.float32))
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.tensor(rng.integers(-2, 3, one.shape)))
    each = []
    for image in images:
        model.zero_grad()
        model(image[None]).sum().backward()
        each.append(sum(int((one.grad.double() ** 2).sum()) for one in model.parameters()))
    model.zero_grad()
    model(images).sum().backward()
    expected = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    assert names["clipped_backward"](model, torch.sum, images, 2.0**40).tolist() == each
    assert all(torch.equal(one.grad, grad) for one, grad in zip(model.parameters(), expected, strict=True))


def test_it_names_every_function() -> None:
    words = ("per_sample", "weighted", "clip")
    named = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert named == {name for name in convgrad.__all__ if name.startswith(words)}
