"""Clip the gradient of each sample of a PyTorch model, and add the clipped gradients.

    python examples/clipped_gradients.py

prints how many samples of a random batch are clipped. `clipped_backward` works for any model of convolutions and linear
layers. Hooks collect the input and the output of each layer. The loss is differentiated with respect to the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import convgrad

LAYERS = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear


def as_convolution(layer: Any, src: Tensor, diff_dst: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...], dict[str, Any]]:
    """Return src, diff_dst, the shape of the weights, and the attributes. A linear layer has one tap."""
    words: dict[str, Any] = {"data_format": "NCX", "weights_format": "OIX"}
    if isinstance(layer, nn.Linear):
        src, diff_dst = (each.reshape(len(each), -1, each.shape[-1]).mT for each in (src, diff_dst))
        return src, diff_dst, (*layer.weight.shape, 1), words
    if layer.padding_mode != "zeros":
        raise ValueError(f"{layer}: pad the input by a layer before this one")
    words |= {"strides": layer.stride, "dilations": layer.dilation, "groups": layer.groups}
    if isinstance(layer.padding, str):
        words["auto_pad"] = {"same": "same_upper", "valid": "valid"}[layer.padding]
    else:
        words |= {"pads_begin": layer.padding, "pads_end": layer.padding}
    return src, diff_dst, layer.weight.shape, words


def clipped_backward(model: nn.Module, loss_sum: Callable[[Tensor], Tensor], images: Tensor, max_norm: float) -> Tensor:
    """Set the gradients of all layers, and return the squared norm of each sample.

    loss_sum returns the sum of the samples' losses from the model's output.
    """
    layers, met = [layer for layer in model.modules() if isinstance(layer, LAYERS)], []
    if others := {*model.parameters()} - {one for layer in layers for one in layer.parameters()}:
        raise ValueError(f"{len(others)} parameters belong to no layer of {LAYERS}: nothing would clip them")
    hooks = [
        layer.register_forward_hook(lambda layer, inputs, dst: met.append((layer, inputs[0].detach(), dst)))
        for layer in layers
    ]
    loss = loss_sum(model(images))
    for hook in hooks:
        hook.remove()
    diff_dsts = torch.autograd.grad(loss, [dst for *_, dst in met])
    calls = [as_convolution(layer, src, diff_dst) for (layer, src, _), diff_dst in zip(met, diff_dsts, strict=True)]
    norm2: Any = 0
    for (layer, *_), (src, diff_dst, shape, words) in zip(met, calls, strict=True):
        norm2 = norm2 + convgrad.per_sample_weights_norm2(src, diff_dst, shape, **words)
        if layer.bias is not None:
            norm2 = norm2 + convgrad.per_sample_bias_norm2(diff_dst, data_format="NCX")
    scale = convgrad.clip_scales(norm2, max_norm)
    for (layer, *_), (src, diff_dst, shape, words) in zip(met, calls, strict=True):
        total = convgrad.weighted_weights_sum(src, diff_dst, shape, scale=scale, **words)
        layer.weight.grad = total.reshape(layer.weight.shape)
        if layer.bias is not None:
            layer.bias.grad = convgrad.weighted_bias_sum(diff_dst, scale=scale, data_format="NCX")
    return norm2


def main() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 12 * 12, 10)
    model, images, labels = nn.Sequential(*layers), torch.randn(32, 3, 16, 16), torch.arange(32) % 10

    def loss_sum(logits: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="sum")

    norm2 = clipped_backward(model, loss_sum, images, max_norm=8.9)
    print(f"{int((norm2 > 8.9**2).sum())} of {len(images)} samples are clipped")


if __name__ == "__main__":
    main()
