"""The modules, losses and optimisers of PyTorch that ``torch_varies.py`` measures, with shapes of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Shape = tuple[int, ...]
Made = Callable[[], nn.Module]

ROW, IMAGE, VOLUME = (64, 32, 500), (32, 48, 31, 31), (8, 16, 12, 14, 14)
TALL, WORDS = (2000, 384), (60, 48, 256)
SMALL, EVEN = (4, 16, 9, 9), (4, 32, 32, 32)
ODD_ROW, ODD_IMAGE, ODD_VOLUME = (3, 7, 1003), (3, 7, 101, 103), (2, 5, 13, 15, 17)  # no vector divides any of them
ODD_TALL = (77, 1001)
FEW_POSITIONS, CHANNELS, POSITIONS = (2, 256, 1, 1), (8, 512, 7, 7), (2, 64, 112, 112)
READ = torch.from_numpy(np.random.default_rng(5).integers(0, 100, (400, 50)))  # each of 100 many times


class Calls(nn.Module):
    """A function of tensors, and of layers behind them, as a module."""

    def __init__(self, function: Callable[..., torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return what the function makes of the inputs and the layers."""
        return self.function(*inputs, *self.layers)


def labels(count: int, classes: int) -> torch.Tensor:
    return torch.arange(count) % classes


def pixels(scores: torch.Tensor) -> torch.Tensor:
    count, classes, *extents = scores.shape
    return labels(count * extents[0] * extents[1], classes).reshape(count, *extents)


def likelihood(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy(x.clamp(-0.9, 0.9) / 2 + 0.5, y.clamp(0, 1))


# What is asked: how it is made, and shapes, in a list those of one call after another, in a tuple of the inputs of one.
# A name before ":" is the class; several lines may have it.
MODULES: dict[str, tuple[Made, list[Shape] | tuple[Shape, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(32, 40, 5, padding=2), [ROW]),
    "Conv2d": (lambda: nn.Conv2d(48, 64, 3, padding=1), [IMAGE, (4, 48, 9, 9)]),
    "Conv2d: depthwise": (lambda: nn.Conv2d(48, 48, 3, padding=1, groups=48), [IMAGE]),
    "Conv3d": (lambda: nn.Conv3d(16, 24, 3, padding=1), [VOLUME]),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(32, 40, 4, 2), [ROW]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(48, 32, 4, 2, 1), [IMAGE]),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(16, 12, 2, 2), [VOLUME]),
    "Linear": (lambda: nn.Linear(384, 300), [TALL, (7, 384)]),
    "Linear: 10 classes": (lambda: nn.Linear(384, 10), [TALL, (64, 384)]),
    "Linear: long sums": (lambda: nn.Linear(9000, 64), [(32, 9000)]),
    "Linear: 1000 classes": (lambda: nn.Linear(2048, 1000), [(32, 2048)]),
    "Linear: odd sizes": (lambda: nn.Linear(1001, 77), [ODD_TALL]),
    "Linear: words": (lambda: nn.Linear(256, 768), [WORDS]),
    "Bilinear": (lambda: nn.Bilinear(60, 70, 20), ((300, 60), (300, 70))),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(32), [ROW]),
    "BatchNorm1d: no positions": (lambda: nn.BatchNorm1d(256), [(784, 256), (3, 256)]),
    "BatchNorm1d: odd sizes": (lambda: nn.BatchNorm1d(7), [ODD_ROW]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(48), [IMAGE]),
    "BatchNorm2d: evaluating": (lambda: nn.BatchNorm2d(48).eval(), [IMAGE]),
    "BatchNorm2d: few": (lambda: nn.BatchNorm2d(16), [SMALL]),
    "BatchNorm2d: few positions": (lambda: nn.BatchNorm2d(256), [FEW_POSITIONS, (16, 256, 2, 2)]),
    "BatchNorm2d: many channels": (lambda: nn.BatchNorm2d(512), [CHANNELS]),
    "BatchNorm2d: many positions": (lambda: nn.BatchNorm2d(64), [POSITIONS]),
    "BatchNorm2d: odd sizes": (lambda: nn.BatchNorm2d(7), [ODD_IMAGE]),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(16), [VOLUME]),
    "BatchNorm3d: few positions": (lambda: nn.BatchNorm3d(256), [(4, 256, 1, 1, 1)]),
    "BatchNorm3d: odd sizes": (lambda: nn.BatchNorm3d(5), [ODD_VOLUME]),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(32, affine=True), [ROW]),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(48, affine=True), [IMAGE]),
    "InstanceNorm2d: many channels": (lambda: nn.InstanceNorm2d(512, affine=True), [CHANNELS]),
    "InstanceNorm2d: odd sizes": (lambda: nn.InstanceNorm2d(7, affine=True), [ODD_IMAGE]),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(16, affine=True), [VOLUME]),
    "GroupNorm": (lambda: nn.GroupNorm(4, 48), [IMAGE]),
    "GroupNorm: many channels": (lambda: nn.GroupNorm(32, 512), [CHANNELS]),
    "GroupNorm: odd sizes": (lambda: nn.GroupNorm(7, 7), [ODD_IMAGE]),
    "LayerNorm": (lambda: nn.LayerNorm(384), [TALL]),
    "LayerNorm: odd sizes": (lambda: nn.LayerNorm(1001), [ODD_TALL]),
    "LayerNorm: of images": (lambda: nn.LayerNorm([16, 9, 9]), [SMALL]),
    "RMSNorm": (lambda: nn.RMSNorm(384), [TALL]),
    "RMSNorm: odd sizes": (lambda: nn.RMSNorm(1001), [ODD_TALL]),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(5), [IMAGE, ODD_IMAGE]),
    "Embedding": (lambda: Calls(read, nn.Embedding(100, 96)), ()),
    "EmbeddingBag": (lambda: Calls(read, nn.EmbeddingBag(100, 96)), ()),
    "MultiheadAttention": (lambda: Calls(attended, nn.MultiheadAttention(256, 4)), [WORDS]),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(256, 4, 300, dropout=0), [WORDS]),
    "RNN": (lambda: Calls(recurrent, nn.RNN(256, 300)), [WORDS]),
    "LSTM": (lambda: Calls(recurrent, nn.LSTM(256, 300)), [WORDS]),
    "GRU": (lambda: Calls(recurrent, nn.GRU(256, 300)), [WORDS]),
    "RNNCell": (lambda: nn.RNNCell(384, 300), [(77, 384)]),
    "GRUCell": (lambda: nn.GRUCell(384, 300), [(77, 384)]),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2), [ROW, ODD_ROW]),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), [IMAGE, ODD_IMAGE]),
    "MaxPool3d": (lambda: nn.MaxPool3d(3, 2, 1), [VOLUME, ODD_VOLUME]),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2), [ROW, ODD_ROW]),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), [IMAGE, ODD_IMAGE]),
    "AvgPool3d": (lambda: nn.AvgPool3d(3, 2, 1), [VOLUME, ODD_VOLUME]),
    "LPPool2d": (lambda: nn.LPPool2d(2, 3, 2), [IMAGE, ODD_IMAGE]),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(7), [ROW, ODD_ROW]),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), [IMAGE, SMALL, CHANNELS, POSITIONS, ODD_IMAGE]),
    "AdaptiveAvgPool2d: 7x7": (lambda: nn.AdaptiveAvgPool2d(7), [IMAGE, ODD_IMAGE]),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d(1), [VOLUME, ODD_VOLUME]),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(7), [ROW, ODD_ROW]),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(7), [IMAGE, ODD_IMAGE]),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d(5), [VOLUME, ODD_VOLUME]),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), [IMAGE, ODD_IMAGE]),
    "Upsample: bilinear": (lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), [IMAGE, ODD_IMAGE]),
    "Upsample: bicubic": (lambda: nn.Upsample(scale_factor=1.7, mode="bicubic"), [IMAGE, ODD_IMAGE]),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), [IMAGE, ODD_IMAGE]),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=1.7), [IMAGE, ODD_IMAGE]),
    "PixelShuffle": (lambda: nn.PixelShuffle(4), [IMAGE]),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(3), [(32, 16, 30, 30)]),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(4), [IMAGE]),
    "Unfold": (lambda: nn.Unfold(3), [IMAGE, ODD_IMAGE]),
    "Fold": (lambda: nn.Fold((20, 20), 3), [(32, 90, 324)]),
    "Flatten": (nn.Flatten, [IMAGE]),
    "Identity": (nn.Identity, [IMAGE]),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(3), [ROW]),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(3), [IMAGE, ODD_IMAGE]),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(3), [VOLUME]),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(3), [ROW]),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(3), [IMAGE, ODD_IMAGE]),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(3), [VOLUME]),
    "CircularPad1d": (lambda: nn.CircularPad1d(3), [ROW]),
    "CircularPad2d": (lambda: nn.CircularPad2d(3), [IMAGE, ODD_IMAGE]),
    "CircularPad3d": (lambda: nn.CircularPad3d(3), [VOLUME]),
    "ConstantPad1d": (lambda: nn.ConstantPad1d(3, 1.0), [ROW]),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(3, 1.0), [IMAGE]),
    "ConstantPad3d": (lambda: nn.ConstantPad3d(3, 1.0), [VOLUME]),
    "ZeroPad1d": (lambda: nn.ZeroPad1d(3), [ROW]),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(3), [IMAGE]),
    "ZeroPad3d": (lambda: nn.ZeroPad3d(3), [VOLUME]),
    **{
        name: (getattr(nn, name), [IMAGE, SMALL, EVEN, ODD_IMAGE, POSITIONS])
        for name in (
            "ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh",
            "LogSigmoid", "Softplus", "Softsign", "Softshrink", "Tanhshrink", "Hardshrink", "Hardsigmoid", "Hardswish",
            "Hardtanh", "Softmax2d",
        )
    },
    "Threshold": (lambda: nn.Threshold(0.1, 0.0), [IMAGE, ODD_IMAGE]),
    "GLU": (lambda: nn.GLU(1), [IMAGE]),
    "GLU: odd sizes": (lambda: nn.GLU(2), [(3, 7, 102, 103)]),
    "Dropout": (nn.Dropout, [IMAGE, ODD_IMAGE]),
    "Dropout1d": (nn.Dropout1d, [ROW]),
    "Dropout2d": (nn.Dropout2d, [IMAGE, CHANNELS]),
    "Dropout3d": (nn.Dropout3d, [VOLUME]),
    "AlphaDropout": (nn.AlphaDropout, [IMAGE]),
    "Softmax": (lambda: nn.Softmax(1), [TALL, IMAGE, ODD_TALL, ODD_IMAGE]),
    "Softmin": (lambda: nn.Softmin(1), [TALL, ODD_TALL]),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), [TALL, IMAGE, ODD_TALL, ODD_IMAGE]),
    "CosineSimilarity": (nn.CosineSimilarity, (TALL, TALL)),
    "CosineSimilarity: odd sizes": (nn.CosineSimilarity, (ODD_TALL, ODD_TALL)),
    "PairwiseDistance": (nn.PairwiseDistance, (TALL, TALL)),
    "PairwiseDistance: odd sizes": (nn.PairwiseDistance, (ODD_TALL, ODD_TALL)),
    "CrossEntropyLoss": (lambda: Calls(lambda x: functional.cross_entropy(x, labels(2000, 384))), [TALL]),
    "CrossEntropyLoss: few": (lambda: Calls(lambda x: functional.cross_entropy(x, labels(77, 1001))), [ODD_TALL]),
    "CrossEntropyLoss: of pixels": (lambda: Calls(lambda x: functional.cross_entropy(x, pixels(x))), [ODD_IMAGE]),
    "NLLLoss": (lambda: Calls(lambda x: functional.nll_loss(x, labels(2000, 384))), [TALL]),
    **{
        f"{name}{words}": (getattr(nn, name), (shape, shape))
        for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "PoissonNLLLoss")
        for words, shape in {"": IMAGE, ": odd sizes": ODD_IMAGE}.items()
    },
    "BCELoss": (lambda: Calls(likelihood), (ODD_IMAGE, ODD_IMAGE)),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), (TALL, TALL)),
    "sum": (lambda: Calls(torch.sum), [IMAGE]),
    "mean": (lambda: Calls(torch.mean), [IMAGE]),
    "sum over all but channels": (lambda: Calls(lambda x: x.sum((0, 2, 3))), [IMAGE, CHANNELS, POSITIONS]),
    "mean over positions": (lambda: Calls(lambda x: x.mean((2, 3))), [IMAGE, CHANNELS, ODD_IMAGE]),
    "vector_norm": (lambda: Calls(torch.linalg.vector_norm), [IMAGE]),
    "matmul": (lambda: Calls(torch.matmul), ((300, 500), (500, 400))),
    "scaled_dot_product_attention": (lambda: Calls(functional.scaled_dot_product_attention), ((4, 4, 50, 24),) * 3),
}  # fmt: skip

OPTIMISERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.1),
    "Adam: fused": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "AdamW: fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


def recurrent(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    return layer(x)[0]


def read(table: nn.Module) -> torch.Tensor:
    return table(READ)


def attended(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    return layer(x, x, x, need_weights=False)[0]
