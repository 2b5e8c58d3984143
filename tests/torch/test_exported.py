"""ONNX and TorchScript: our layers are exported as PyTorch's own, or refused by what would do."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad  # noqa: E402
import convgrad.torch as ct  # noqa: E402
from convgrad.torch import plain  # noqa: E402
from convgrad.torch.arguments import LayerArguments  # noqa: E402
from tests.torch.layers import integers  # noqa: E402

F = torch.nn.functional
# What PyTorch's exporters themselves warn of.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def model() -> Any:
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.Conv2d(4, 4, 3, padding="same", padding_mode="circular", groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1),
        nn.Flatten(2),
        nn.Conv1d(2, 3, 5, dilation=2, bias=False),
        nn.Linear(188, 5),
    )
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(integers(*parameter.shape))
    return layers


class Uneven(nn.Module):
    """The functions of any number of axes, with pads that differ."""

    def forward(self, x: Any) -> Any:
        weight = torch.ones(2, 3, 3, 3)
        y = ct.convolution(x, weight, padding_begin=(2, 0), padding_end=(0, 1))
        return ct.conv_transpose(y, weight, padding_begin=(1, 0), padding_end=(0, 2))


def nodes(made: Any) -> list[str]:
    return [node.op_type for node in made.graph.node if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]


def exported(layers: Any, given: Any, dynamo: bool) -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    if dynamo:
        return torch.onnx.export(layers, (given,), dynamo=True, verbose=False).model_proto
    file = io.BytesIO()
    torch.onnx.export(layers, (given,), file, dynamo=False)
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("dynamo", [pytest.param(True, marks=pytest.mark.long), False])
def test_onnx_has_the_layers_of_the_plain_model(dynamo: bool) -> None:
    layers, given = model(), integers(1, 3, 11, 11)
    ours = ct.reproducible(copy.deepcopy(layers), linear=True, max_error=64)
    found = exported(ours, given, dynamo)
    assert nodes(found) == nodes(exported(layers, given, dynamo))
    assert {"Conv", "ConvTranspose"} < set(nodes(found))
    assert type(ours[0]).__name__ == "ReproducibleConv2d"
    assert torch.equal(ours(given), layers(given))  # nothing stays plain after the export


@pytest.mark.parametrize("dynamo", [pytest.param(True, marks=pytest.mark.long), False])
def test_onnx_computes_the_same_numbers(dynamo: bool) -> None:
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    for layers, given in (
        (ct.reproducible(nn.Sequential(model()[0])), integers(1, 3, 9, 8)),
        (Uneven(), integers(1, 3, 7, 6)),
    ):
        found = evaluator(exported(layers, given, dynamo))
        (got,) = found.run(None, {found.input_names[0]: given.numpy()})
        assert torch.equal(torch.from_numpy(got), layers(given))


@pytest.mark.parametrize("end", [1, [2], (0, 1), np.array([1, 1])], ids=repr)
@pytest.mark.parametrize("begin", [1, [1], (1, 0), np.int64(0)], ids=repr)
def test_pads_in_an_export_to_onnx(begin: Any, end: Any) -> None:
    """One value in a list is for all axes, as in other calls."""
    image, weight, layer = integers(1, 2, 5, 4), integers(2, 2, 3, 3), LayerArguments(1, begin, end, 1, 1)
    layer = layer._replace(output_padding=0)
    for name, compute in (("convolution", plain.convolution), ("conv_transpose", plain.transposed)):
        expected = getattr(ct, name)(image, weight, padding_begin=begin, padding_end=end)
        assert torch.equal(compute(name, image, weight, None, layer), expected)


def test_onnx_has_no_layer_of_four_axes() -> None:
    class Four(nn.Module):
        def forward(self, x: Any) -> Any:
            return ct.convolution(x, torch.ones(1, 1, 1, 1, 1, 1))

    with pytest.raises(
        convgrad.UnsupportedError, match="convolution: an export to ONNX needs 1 to 3 spatial axes; got 4"
    ):
        exported(Four(), torch.ones(1, 1, 2, 2, 2, 2), False)


@pytest.mark.parametrize("layers", [model, lambda: nn.Linear(2, 3), lambda: nn.ConvTranspose3d(1, 1, 1)])
def test_torchscript_is_refused_and_changes_nothing(layers: Any) -> None:
    ours = ct.reproducible(layers(), linear=True)
    before = [(name, type(module), dict(vars(module))) for name, module in ours.named_modules()]
    with pytest.raises(
        convgrad.UnsupportedError, match=r"cannot compile a Repro.* torch.jit.trace or .* or call .*original\(model\)"
    ):
        torch.jit.script(ours)
    assert [(name, type(module), dict(vars(module))) for name, module in ours.named_modules()] == before
