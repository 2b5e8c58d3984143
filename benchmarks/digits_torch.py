"""The network of examples/train_digits.py in PyTorch: the same layers, weights and batches, by PyTorch's own means.

Gradients are autograd's, steps those of its fused Adam, whose epsilon is sqrt(1 - 0.999^t) of the example's at step t.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional
from train_digits import PICTURE_SHARE, Array, Arrays, schedule

Tensors = dict[str, torch.Tensor]
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def tensors(parameters: Arrays, layout: str) -> Tensors:
    """Return the parameters as PyTorch has them: (out, in, height, width), of the transposed layer (in, out, ...)."""
    made = {}
    for name, values in parameters.items():
        given = torch.tensor(values.transpose(3, 2, 0, 1) if values.ndim == 4 else values)
        placed = given.contiguous(memory_format=LAYOUTS[layout]) if values.ndim == 4 else given
        made[name] = placed.requires_grad_()
    return made


def pictures(images: Array, layout: str) -> torch.Tensor:
    """Return images as PyTorch has them."""
    return torch.tensor(images.transpose(0, 3, 1, 2)).contiguous(memory_format=LAYOUTS[layout])


def losses(parameters: Tensors, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean cross entropy and the mean squared error of the pixels."""

    def given(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return parameters[name], parameters[f"{name}_bias"]

    edges = functional.relu(functional.conv2d(images, *given("edges"), padding=1))
    padded = functional.pad(edges, (0, 1, 0, 1))  # same_upper of an even extent, which PyTorch cannot say
    strokes = functional.relu(functional.conv2d(padded, *given("strokes"), stride=2))
    digit = functional.conv2d(strokes, *given("digit"))
    picture = functional.conv_transpose2d(strokes, *given("picture"), stride=2, padding=1)
    return functional.cross_entropy(digit.flatten(1), labels), functional.mse_loss(picture, images)


def step(parameters: Tensors, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Add the gradients of a batch to those of the parameters; return both losses."""
    both = losses(parameters, images, labels)
    (both[0] + PICTURE_SHARE * both[1]).backward()
    return both[0].item(), both[1].item()


def train(
    parameters: Tensors, images: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace
) -> Iterator[list[float]]:
    """Train the parameters in place; yield both losses after every epoch."""
    adam = torch.optim.Adam(list(parameters.values()), fused=True)
    for steps in schedule(len(images), options):
        found = []
        for number, batch, rate in steps:
            chosen = torch.from_numpy(batch)
            adam.zero_grad()
            found.append(step(parameters, images[chosen], labels[chosen]))
            adam.param_groups[0] |= {"lr": rate, "eps": 1e-8 / math.sqrt(1 - 0.999**number)}
            adam.step()
        yield np.mean(found, axis=0).tolist()
