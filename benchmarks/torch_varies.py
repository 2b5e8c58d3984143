"""Measure which of PyTorch's own modules, losses and optimisers compute different bits in different settings.

python benchmarks/torch_varies.py -o benchmarks/results/torch_varies.csv
python benchmarks/torch_varies.py --table benchmarks/results/torch_varies.csv
python benchmarks/torch_varies.py --classes benchmarks/results/torch_varies*.csv > src/convgrad/torch/varying.py

The second command prints the table of docs/torch.md. The third prints the module that `convgrad.torch.report` reads.

Each setting is a process: 1, 2, 3 or 8 threads of PyTorch, and on one thread each instruction set, which environment
variables of ATen, oneDNN and MKL limit. Each process computes every image and volume in two memory formats. The
operands are NumPy's, so they are the same in every setting. A row has the number of distinct results of a pass:

- threads: on 1, 2, 3 and 8 threads;
- avx: with AVX-512 and AVX2; sets: with AVX-512, AVX2 and neither;
- formats: with contiguous and channels-last operands, compared element by element.

A result of 1 proves nothing about other shapes or another processor. A result of 2 or more does vary.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from rows import asked, write_rows
from torch import nn
from torch.nn import functional

from convgrad.host import cpu_fields, cpu_model

Shape = tuple[int, ...]
Made = Callable[[], nn.Module]
Results = dict[str, torch.Tensor]

PASSES = ("forward", "backward, input", "backward, parameters")
DRAWS = (20, 30, 40)  # a sum that is one number may by chance be the same in another order
THREADS = ("1", "2", "3", "8")
SETS = {  # by what each of PyTorch's parts calls them
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
# More threads than cores must not wait for one another in loops.
SETTINGS = {("threads", count): {"OMP_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"} for count in THREADS} | {
    ("sets", name): {"OMP_NUM_THREADS": "1"} | environment for name, environment in SETS.items()
}
DISTINCT = {  # by column: the settings whose results are counted
    "threads": [("threads", count) for count in THREADS],
    "avx": [("sets", "avx512"), ("sets", "avx2")],
    "sets": [("sets", name) for name in SETS],
}
NAMES = {"threads": "threads", "avx": "AVX", "sets": "neither", "formats": "format"}
AXES = {"threads": "threads", "sets": "instruction set", "formats": "memory format"}  # of a class, by column
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by rank
# The settings and the shapes, in one line of a report.
TRIED = "1, 2, 3, 8 threads; AVX-512, AVX2, neither; 2 memory formats; few and many channels and positions, odd sizes"

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


def drawn(shape: Shape, seed: int) -> torch.Tensor:
    """Return normal numbers as NumPy draws them: PyTorch's own vary with its instruction set."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def stored(tensor: torch.Tensor, last: bool) -> torch.Tensor:
    """Return a tensor with its channels last in memory if that is asked for and possible."""
    return tensor.contiguous(memory_format=LAST[tensor.dim()]) if last and tensor.dim() in LAST else tensor


def filled(module: nn.Module, seed: int, last: bool) -> nn.Module:
    """Give all parameters values of NumPy's."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.data = stored(parameter.data, last)
            parameter.copy_(drawn(tuple(parameter.shape), 1000 * seed + number) / 8 + 0.3)
    return module


def runs(made: Made, shapes: list[Shape] | tuple[Shape, ...], last: bool) -> Iterator[Results]:
    """Yield the results of a module, call by call, in one memory format."""
    module = filled(made(), 1, last)
    for given, draw in product([shapes] if isinstance(shapes, tuple) else [(shape,) for shape in shapes], DRAWS):
        inputs = [stored(drawn(shape, draw + number), last).requires_grad_() for number, shape in enumerate(given)]
        module.zero_grad()
        torch.manual_seed(draw)
        output = module(*inputs)
        output.backward(stored(drawn(tuple(output.shape), draw + 5), last))
        parameters = {f"parameter {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
        data = {f"input {number}": x.grad for number, x in enumerate(inputs) if x.grad is not None}
        yield {"output": output.detach(), **dict(module.named_buffers())} | data | parameters


def stepped(optimiser: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]) -> Results:
    """Return parameters after three steps."""
    parameters = [nn.Parameter(drawn(shape, seed)) for seed, shape in enumerate([(300, 400), (7,), (64, 48, 3, 3)])]
    steps = optimiser(iter(parameters))
    for number in range(3):
        for at, parameter in enumerate(parameters):
            parameter.grad = drawn(tuple(parameter.shape), 100 * number + at)
        steps.step()
    return {f"parameter {at}": parameter.detach() for at, parameter in enumerate(parameters)}


def clipped(draw: int) -> Results:
    """Return gradients whose common norm was clipped."""
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in [(300, 400), (256, 256, 3, 3)]]
    for at, parameter in enumerate(parameters):
        parameter.grad = drawn(tuple(parameter.shape), draw + at)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    return {f"gradient {at}": parameter.grad for at, parameter in enumerate(parameters)}


def random(draw: int) -> dict[str, Results]:
    """Return what PyTorch draws itself, from a seed."""
    torch.manual_seed(draw)
    layer = nn.Conv2d(48, 64, 3)
    return {
        "randn": {"output": torch.randn(300, 400)},
        "rand": {"output": torch.rand(300, 400)},
        "randperm": {"output": torch.randperm(5000)},
        "parameters of a new Conv2d": {"output": layer.weight.detach()},
    }


def kind(result: str) -> str:
    """Return the pass that a result is of."""
    name = result.split(maxsplit=1)[0]
    return dict(zip(("input", "parameter"), PASSES[1:], strict=True)).get(name, PASSES[0])


Found = dict[str, dict[str, dict[str, str]]]  # hashes by what was computed, by pass and by memory format


def hashes() -> Found:
    """Return the hash of every result in this process's setting."""
    made: dict[tuple[str, str, str], hashlib._Hash] = defaultdict(hashlib.sha256)

    def add(name: str, results: Results, only: str | None = None, last: bool = False) -> None:
        for result, tensor in results.items():
            of = made[name, only or kind(result), "last" if last else "contiguous"]
            of.update(tensor.contiguous().numpy().tobytes())  # in the order of the elements, however they are stored

    for name, (module, shapes) in MODULES.items():
        for last in (False, True) if any(len(shape) in LAST for shape in shapes) else (False,):
            for results in runs(module, shapes, last):
                add(name, results, last=last)
    for name, optimiser in OPTIMISERS.items():
        add(name, stepped(optimiser), "step")
    for draw in DRAWS:
        for name, results in random(draw).items():
            add(name, results)
        add("clip_grad_norm_", clipped(draw), "step")
    found: Found = {}
    for (name, of_pass, stored_as), digest in made.items():
        found.setdefault(name, {}).setdefault(of_pass, {})[stored_as] = digest.hexdigest()
    return found


def counts(found: Mapping[tuple[str, str], Found], name: str, of_pass: str) -> dict[str, int]:
    """Return how many results differ, by column: between settings in one memory format, and between formats in one."""
    each = {setting: results[name][of_pass] for setting, results in found.items()}
    formats = each["threads", "1"]
    return {
        axis: max(len({each[setting][stored_as] for setting in settings}) for stored_as in formats)
        for axis, settings in DISTINCT.items()
    } | {"formats": max(len(set(results.values())) for results in each.values())}


def table(path: Path) -> str:
    """Return measured rows as Markdown: what varied, by pass, and what never did."""
    found: dict[str, dict[str, str]] = {}
    for row in rows_of([path]):
        varied = [axis for axis in NAMES if int(row[axis]) > 1]
        words = [NAMES[axis] for axis in varied if axis != "sets" or "avx" not in varied]
        found.setdefault(row["what"], {})[row["pass"].replace("step", "forward")] = ", ".join(words) or "the same"
    lines = [f"| module | {' | '.join(PASSES)} |", "|---|---|---|---|"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, passes in found.items():
        if set(passes.values()) != {"the same"}:
            groups.setdefault(tuple(passes.get(of, "") for of in PASSES), []).append(name)
    lines += [f"| {', '.join(names)} | {' | '.join(passes)} |" for passes, names in groups.items()]
    steady = [name for name, passes in found.items() if set(passes.values()) == {"the same"}]
    return "\n".join((*lines, "", *wrap(f"Never varied: {', '.join(steady)}.", 125, break_on_hyphens=False)))


def rows_of(paths: Iterable[Path]) -> Iterator[dict[str, str]]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from csv.DictReader(file)


VARYING = '''\
"""What PyTorch's own modules vary with, as ``benchmarks/torch_varies.py --classes`` writes it from measured rows.

A class varies with a setting if any pass had different bits, on any processor that was measured, in f32.
Settings: 1, 2, 3 and 8 threads; AVX-512, AVX2 and neither; contiguous and channels-last operands.
Shapes: few and many channels, few and many positions, sizes that no vector length divides.
A class that never varied may still do so with other shapes or on another processor.
"""

from __future__ import annotations

TRIED = "{tried}"
DEPENDENCES = ({axes})
_CLASSES = {{
{classes}}}
VARIES_WITH = {{name: frozenset(on) for on, names in _CLASSES.items() for name in names.split()}}
'''


def classes(paths: Sequence[Path]) -> str:
    """Return the source of convgrad/torch/varying.py: PyTorch's modules by what they varied with in any file."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows_of(paths):
        name = row["what"].split(":")[0]
        if isinstance(getattr(nn, name, None), type) and not name.startswith("Conv"):
            found[name] |= {axis for axis in AXES if int(row.get(axis) or 1) > 1}
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, varied in sorted(found.items()):
        groups[tuple(words for axis, words in AXES.items() if axis in varied)].append(name)
    text = ""
    for on, names in sorted(groups.items(), key=lambda item: -len(item[0])):
        key = ", ".join(f'"{words}"' for words in on) + "," * (len(on) == 1)
        lines = wrap(" ".join(names), 120, initial_indent=" " * 8, subsequent_indent=" " * 8)
        text += "\n".join((f'    ({key}): """', *lines, '    """,\n'))
    axes = ", ".join(f'"{words}"' for words in AXES.values())
    return VARYING.format(tried=TRIED, axes=axes, classes=text)


def ask(environment: Mapping[str, str]) -> Found:
    """Return the hashes of a process with a setting."""
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="print the rows of such a file as Markdown, and measure nothing")
    parser.add_argument("--classes", type=Path, nargs="+", help="print varying.py of such files, and measure nothing")
    parser.add_argument("--one", action="store_true", help="print the hashes of this process's setting, as JSON")
    options = asked(parser)
    if options.one:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # more than cores, if so asked
        print(json.dumps(hashes()))
        return
    if options.table:
        print(table(options.table))
        return
    if options.classes:
        print(classes(options.classes), end="")
        return
    found = {}
    for setting, environment in SETTINGS.items():
        found[setting] = ask(environment)
        print(f"measured: {' '.join(setting)}", file=sys.stderr)
    machine = {"torch": torch.__version__, "processor": f"{cpu_model()} (family {cpu_fields().get('cpu family')})"}
    rows = []
    for name, passes in found["threads", "1"].items():
        for of in passes:
            distinct = counts(found, name, of)
            rows.append({"what": name, "pass": of, **distinct, **machine})
            print(f"{name:32} {of:22} {distinct}")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
