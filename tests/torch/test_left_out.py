"""What reproducible leaves to PyTorch is named, and so is a model in which it found nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad.torch as ct  # noqa: E402


class OwnForward(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


class OwnConvolution(nn.Conv1d):
    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
        return super()._conv_forward(x, weight / 2, bias)


class Conv2dSame(nn.Conv2d):
    """As timm and others pad in TensorFlow's way: by a function, before a function."""

    def forward(self, x: Any) -> Any:
        axes = zip(x.shape[2:], self.kernel_size, self.stride, strict=True)
        pads = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in axes]
        x = nn.functional.pad(x, [half for pad in reversed(pads) for half in (pad // 2, pad - pad // 2)])
        return nn.functional.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class CondConv2d(nn.Module):
    """A convolution whose weights are a mixture of its experts', of each sample its own: a function of many groups."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 6 * 3 * 3 * 3))

    def forward(self, x: Any, routing: Any) -> Any:
        weight = (routing @ self.weight).view(-1, 3, 3, 3)
        return nn.functional.conv2d(x.reshape(1, -1, *x.shape[2:]), weight, groups=len(x)).view(len(x), 6, -1)


def patched() -> Any:
    layer = nn.ConvTranspose2d(4, 6, 3)
    layer.forward = lambda x: x
    return layer


LEFT_OUT = {
    "a OwnForward, whose forward is its own": lambda: OwnForward(4, 6, 3),
    "a Conv2dSame, whose forward is its own: call convgrad.torch's functions in it": lambda: Conv2dSame(4, 6, 3),
    "a OwnConvolution, whose _conv_forward is its own": lambda: OwnConvolution(4, 6, 3),
    "a ConvTranspose2d, whose forward is its own": patched,
    "a LazyConv2d, whose shape is known after the model's first call": lambda: nn.LazyConv2d(6, 3),
    "a Conv3d of torch.float64: there are kernels for f32, bf16, f16": lambda: nn.Conv3d(4, 6, 3, dtype=torch.float64),
    "which TorchScript has compiled": lambda: torch.jit.script(nn.Conv2d(4, 6, 3)),
}


@pytest.mark.parametrize("reason", LEFT_OUT)
@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_what_is_left_out_is_named(reason: str) -> None:
    layer = LEFT_OUT[reason]()
    model, kind = nn.Sequential(nn.Identity(), nn.Sequential(layer)), type(layer)
    with pytest.warns(UserWarning, match=f"reproducible: PyTorch still computes 1.0, {reason}"):
        ct.reproducible(model)
    assert type(model[1][0]) is kind
    (left,) = ct.report(model).left_out.items()
    assert left[0] == "1.0"
    assert left[1].startswith(reason)


def quantized() -> Any:
    return torch.ao.nn.quantized.Conv2d(3, 4, 3)


@pytest.mark.parametrize(
    ("layer", "linear", "words"),
    [
        (CondConv2d, False, r"modules are \S+\.CondConv2d, torch.nn.modules.container.Sequential, \S+\.ReLU\. Layers"),
        (quantized, True, r"modules are torch.ao.nn.quantized.modules.conv.Conv2d, .*quantized layers"),
        (
            lambda: nn.Linear(2, 3),
            False,
            r"torch.nn.modules.linear.Linear, \S+\.ReLU\. linear=True computes the Linear\.",
        ),
        (
            lambda: nn.Sequential(*[type(f"M{i}", (nn.Module,), {})() for i in range(9)]),
            False,
            r"\.M6 and 3 more\. Layers",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_model_without_convolutions_is_named(layer: Any, linear: bool, words: str) -> None:
    with pytest.warns(UserWarning, match=f"^reproducible: found no convolution of torch.nn, .*{words}"):
        ct.reproducible(nn.Sequential(layer(), nn.ReLU()), linear=linear)


def test_a_model_that_is_reproducible_has_convolutions() -> None:
    for _ in range(2):
        ct.reproducible(nn.Sequential(ct.reproducible(nn.Conv1d(1, 1, 1))))
    ct.reproducible(nn.Linear(1, 1), linear=True)


@pytest.mark.long
@pytest.mark.skipif(find_spec("keras") is None, reason="Keras is not installed")
def test_a_model_of_keras_is_named() -> None:
    """Its layers are no children that PyTorch lists. In a process of its own, as the backend is set at the import."""
    program = """if True:
        import keras, warnings, convgrad.torch as ct
        model = keras.Sequential([keras.layers.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ct.reproducible(model)
        print(*[warning.message for warning in caught if "reproducible" in str(warning.message)])
    """
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert "found no convolution of torch.nn" in done.stdout
    assert "keras.src.models.sequential.Sequential" in done.stdout
