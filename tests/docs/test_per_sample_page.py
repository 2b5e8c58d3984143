"""The page on single samples: its programs run, what they return is what it says, and it has every function."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.helpers import assert_same_bits
from tests.support.places import DOCS

PAGE = (DOCS / "per_sample.md").read_text(encoding="utf-8")
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


@pytest.fixture
def pytorch_program() -> dict[str, Any]:
    pytest.importorskip("torch")
    names: dict[str, Any] = {"convgrad": convgrad}
    (block,) = [block for block in BLOCKS if "import torch" in block]
    exec(compile(block, "per_sample.md", "exec"), names)
    return names


def layers_of(nn: Any, kind: str) -> tuple[list[Any], tuple[int, ...]]:
    """Return layers and the shape of a sample."""
    if kind == "Linear":  # of three positions each
        return [nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)], (3, 4)
    axes = int(kind[-2])
    conv = getattr(nn, kind)
    last = nn.Linear(3 * 2**axes, 2)
    between = [nn.ReLU(), conv(4, 3, 3, 2, padding="valid"), nn.Flatten(), last]
    first = conv(2, 4, 2, padding="same", bias=False) if axes != 2 else conv(2, 4, 3, padding=1, groups=2)
    return [first, *between], (2, *(6,) * axes)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize("kind", ["Conv1d", pytest.param("Conv2d", marks=pytest.mark.long), "Conv3d", "Linear"])
def test_its_pytorch_program_has_the_gradients_of_autograd(kind: str, pytorch_program: dict[str, Any]) -> None:
    """On integers, which nothing rounds: each sample's norm, and where none is clipped the gradients themselves."""
    torch = pytest.importorskip("torch")
    layers, shape = layers_of(torch.nn, kind)
    model = torch.nn.Sequential(*layers)
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.integers(-2, 3, (3, *shape)).astype(np.float32))
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
    assert pytorch_program["clipped_backward"](model, torch.sum, images, 2.0**40).tolist() == each
    assert all(torch.equal(one.grad, grad) for one, grad in zip(model.parameters(), expected, strict=True))


def test_its_pytorch_program_refuses_what_it_would_not_clip(pytorch_program: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1), torch.nn.GroupNorm(1, 1))
    with pytest.raises(ValueError, match="2 parameters belong to no layer of"):
        pytorch_program["clipped_backward"](model, torch.sum, torch.ones(2, 1, 3), 1.0)
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"))
    with pytest.raises(ValueError, match="pad the input by a layer before"):
        pytorch_program["clipped_backward"](model, torch.sum, torch.ones(2, 1, 3), 1.0)


def test_it_names_every_function() -> None:
    words = ("per_sample", "weighted", "clip")
    named = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert named == {name for name in convgrad.__all__ if name.startswith(words)}
