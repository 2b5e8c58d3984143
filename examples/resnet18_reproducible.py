"""Three training steps of a ResNet-18 whose weights have the same bits on any threads and instruction set.

    python examples/resnet18_reproducible.py
    CONVGRAD_NUM_THREADS=1 CONVGRAD_MAX_ISA=avx2 python examples/resnet18_reproducible.py

prints the same fingerprint twice. PyTorch, which computes all but the convolutions, is held to one thread: some of its
own layers sum in another order on more (docs/torch.md). --threads lets it have more, --plain leaves it the
convolutions.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

import convgrad.torch

SEED, BATCH, SIDE, CLASSES = 0, 8, 64, 10


class BasicBlock(nn.Module):
    """Two convolutions 3x3, and what came in added to what goes out."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(x + what two convolutions make of it)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """ResNet-18: 20 convolutions, of ``width`` channels first (64 in the original), twice as many each stage."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(width, width, 1), BasicBlock(width, width, 1))
        self.layer2 = nn.Sequential(BasicBlock(width, 2 * width, 2), BasicBlock(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(BasicBlock(2 * width, 4 * width, 2), BasicBlock(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(BasicBlock(4 * width, 8 * width, 2), BasicBlock(8 * width, 8 * width, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def train(model: nn.Module, steps: int) -> list[float]:
    """Train on made-up images and labels, in place; return the losses."""
    rng = np.random.default_rng(SEED)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        images = torch.from_numpy(rng.standard_normal((BATCH, 3, SIDE, SIDE), np.float32))
        labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's own threads")
    parser.add_argument("--plain", action="store_true", help="leave the convolutions to PyTorch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    model = ResNet18(options.width)
    if not options.plain:
        model = convgrad.torch.reproducible(model)
    before = convgrad.torch.fingerprint(model)
    losses = train(model, options.steps)
    print(convgrad.torch.report(model))
    print("before", before)
    print("losses", *losses)
    print("after ", convgrad.torch.fingerprint(model))


if __name__ == "__main__":
    main()
