"""Which of PyTorch's own modules, losses and optimisers answer in other bits with other threads or instructions.

python benchmarks/torch_varies.py -o benchmarks/results/torch_varies.csv
python benchmarks/torch_varies.py --table benchmarks/results/torch_varies.csv

The second prints the table of docs/torch.md.

Each setting is a process of its own: 1, 2, 3, 8 threads of PyTorch, and for one thread its instruction sets as its own
kernels, oneDNN's and MKL's are told by environment. The numbers that go in are NumPy's, whatever the setting. A row
has, of the results of a pass, how many differ between threads, between AVX-512 and AVX2, and between these and neither:
1 is what never varied here, on these shapes and this processor, and proves nothing about others; 2 and more does vary.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from rows import asked, write_rows
from torch import nn
from torch.nn import functional

from convgrad.host import cpu_model

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
NAMES = {"threads": "threads", "avx": "AVX", "sets": "neither"}

ROW, IMAGE, VOLUME = (64, 32, 500), (32, 48, 31, 31), (8, 16, 12, 14, 14)
TALL, WORDS = (2000, 384), (60, 48, 256)
SMALL = (4, 16, 9, 9)
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
    "Bilinear": (lambda: nn.Bilinear(60, 70, 20), ((300, 60), (300, 70))),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(32), [ROW]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(48), [IMAGE]),
    "BatchNorm2d: evaluating": (lambda: nn.BatchNorm2d(48).eval(), [IMAGE]),
    "BatchNorm2d: few": (lambda: nn.BatchNorm2d(16), [SMALL]),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(16), [VOLUME]),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(32, affine=True), [ROW]),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(48, affine=True), [IMAGE]),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(16, affine=True), [VOLUME]),
    "GroupNorm": (lambda: nn.GroupNorm(4, 48), [IMAGE]),
    "LayerNorm": (lambda: nn.LayerNorm(384), [TALL]),
    "RMSNorm": (lambda: nn.RMSNorm(384), [TALL]),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(5), [IMAGE]),
    "Embedding": (lambda: Calls(read, nn.Embedding(100, 96)), ()),
    "EmbeddingBag": (lambda: Calls(read, nn.EmbeddingBag(100, 96)), ()),
    "MultiheadAttention": (lambda: Calls(attended, nn.MultiheadAttention(256, 4)), [WORDS]),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(256, 4, 300, dropout=0), [WORDS]),
    "RNN": (lambda: Calls(recurrent, nn.RNN(256, 300)), [WORDS]),
    "LSTM": (lambda: Calls(recurrent, nn.LSTM(256, 300)), [WORDS]),
    "GRU": (lambda: Calls(recurrent, nn.GRU(256, 300)), [WORDS]),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2), [ROW]),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), [IMAGE]),
    "MaxPool3d": (lambda: nn.MaxPool3d(3, 2, 1), [VOLUME]),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2), [ROW]),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), [IMAGE]),
    "AvgPool3d": (lambda: nn.AvgPool3d(3, 2, 1), [VOLUME]),
    "LPPool2d": (lambda: nn.LPPool2d(2, 3, 2), [IMAGE]),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(7), [ROW]),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), [IMAGE, SMALL]),
    "AdaptiveAvgPool2d: 7x7": (lambda: nn.AdaptiveAvgPool2d(7), [IMAGE]),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d(1), [VOLUME]),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(7), [ROW]),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(7), [IMAGE]),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d(5), [VOLUME]),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), [IMAGE]),
    "Upsample: bilinear": (lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), [IMAGE]),
    "Upsample: bicubic": (lambda: nn.Upsample(scale_factor=1.7, mode="bicubic"), [IMAGE]),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), [IMAGE]),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=1.7), [IMAGE]),
    "PixelShuffle": (lambda: nn.PixelShuffle(4), [IMAGE]),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(3), [(32, 16, 30, 30)]),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(4), [IMAGE]),
    "Unfold": (lambda: nn.Unfold(3), [IMAGE]),
    "Fold": (lambda: nn.Fold((20, 20), 3), [(32, 90, 324)]),
    "Flatten": (nn.Flatten, [IMAGE]),
    "Identity": (nn.Identity, [IMAGE]),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(3), [ROW]),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(3), [IMAGE]),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(3), [VOLUME]),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(3), [ROW]),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(3), [IMAGE]),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(3), [VOLUME]),
    "CircularPad1d": (lambda: nn.CircularPad1d(3), [ROW]),
    "CircularPad2d": (lambda: nn.CircularPad2d(3), [IMAGE]),
    "CircularPad3d": (lambda: nn.CircularPad3d(3), [VOLUME]),
    "ConstantPad1d": (lambda: nn.ConstantPad1d(3, 1.0), [ROW]),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(3, 1.0), [IMAGE]),
    "ConstantPad3d": (lambda: nn.ConstantPad3d(3, 1.0), [VOLUME]),
    "ZeroPad1d": (lambda: nn.ZeroPad1d(3), [ROW]),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(3), [IMAGE]),
    "ZeroPad3d": (lambda: nn.ZeroPad3d(3), [VOLUME]),
    **{
        name: (getattr(nn, name), [IMAGE, SMALL])
        for name in (
            "ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh",
            "LogSigmoid", "Softplus", "Softsign", "Softshrink", "Tanhshrink", "Hardshrink", "Hardsigmoid", "Hardswish",
            "Hardtanh", "Softmax2d",
        )
    },
    "Threshold": (lambda: nn.Threshold(0.1, 0.0), [IMAGE]),
    "GLU": (lambda: nn.GLU(1), [IMAGE]),
    "Dropout": (nn.Dropout, [IMAGE]),
    "Dropout2d": (nn.Dropout2d, [IMAGE]),
    "AlphaDropout": (nn.AlphaDropout, [IMAGE]),
    "Softmax": (lambda: nn.Softmax(1), [TALL, IMAGE]),
    "Softmin": (lambda: nn.Softmin(1), [TALL]),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), [TALL, IMAGE]),
    "CosineSimilarity": (nn.CosineSimilarity, (TALL, TALL)),
    "PairwiseDistance": (nn.PairwiseDistance, (TALL, TALL)),
    "CrossEntropyLoss": (lambda: Calls(lambda x: functional.cross_entropy(x, labels(2000, 384))), [TALL]),
    "NLLLoss": (lambda: Calls(lambda x: functional.nll_loss(x, labels(2000, 384))), [TALL]),
    "MSELoss": (nn.MSELoss, (IMAGE, IMAGE)),
    "L1Loss": (nn.L1Loss, (IMAGE, IMAGE)),
    "SmoothL1Loss": (nn.SmoothL1Loss, (IMAGE, IMAGE)),
    "HuberLoss": (nn.HuberLoss, (IMAGE, IMAGE)),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, (IMAGE, IMAGE)),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), (TALL, TALL)),
    "sum": (lambda: Calls(torch.sum), [IMAGE]),
    "mean": (lambda: Calls(torch.mean), [IMAGE]),
    "sum over all but channels": (lambda: Calls(lambda x: x.sum((0, 2, 3))), [IMAGE]),
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


def filled(module: nn.Module, seed: int) -> nn.Module:
    """Give all parameters values of NumPy's."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(drawn(tuple(parameter.shape), 1000 * seed + number) / 8 + 0.3)
    return module


def runs(made: Made, shapes: list[Shape] | tuple[Shape, ...]) -> Iterator[Results]:
    """Yield the results of a module, call by call."""
    module = filled(made(), 1)
    for given, draw in product([shapes] if isinstance(shapes, tuple) else [(shape,) for shape in shapes], DRAWS):
        inputs = [drawn(shape, draw + number).requires_grad_() for number, shape in enumerate(given)]
        module.zero_grad()
        torch.manual_seed(draw)
        output = module(*inputs)
        output.backward(drawn(tuple(output.shape), draw + 5))
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


def hashes() -> dict[str, dict[str, str]]:
    """Return, of this process's setting, the hash of every result by what made it and its pass."""
    made: dict[str, dict[str, hashlib._Hash]] = {}

    def add(name: str, results: Results, only: str | None = None) -> None:
        for result, tensor in results.items():
            of_pass = made.setdefault(name, {}).setdefault(only or kind(result), hashlib.sha256())
            of_pass.update(tensor.contiguous().numpy().tobytes())

    for name, (module, shapes) in MODULES.items():
        for results in runs(module, shapes):
            add(name, results)
    for name, optimiser in OPTIMISERS.items():
        add(name, stepped(optimiser), "step")
    for draw in DRAWS:
        for name, results in random(draw).items():
            add(name, results)
        add("clip_grad_norm_", clipped(draw), "step")
    return {name: {of: found.hexdigest() for of, found in passes.items()} for name, passes in made.items()}


def table(path: Path) -> str:
    """Return measured rows as Markdown: what varied, by pass, and what never did."""
    found: dict[str, dict[str, str]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            varied = [axis for axis in DISTINCT if int(row[axis]) > 1]
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


def ask(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the hashes of a process with a setting."""
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="print rows of such a file as Markdown, and measure nothing")
    parser.add_argument("--one", action="store_true", help="print the hashes of this process's setting, as JSON")
    options = asked(parser)
    if options.one:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # more than cores, if so asked
        print(json.dumps(hashes()))
        return
    if options.table:
        print(table(options.table))
        return
    found = {setting: ask(environment) for setting, environment in SETTINGS.items()}
    rows = []
    for name, passes in found["threads", "1"].items():
        for of in passes:
            distinct = {
                axis: len({found[setting][name][of] for setting in settings}) for axis, settings in DISTINCT.items()
            }
            rows.append({"what": name, "pass": of, **distinct, "torch": torch.__version__, "processor": cpu_model()})
            print(f"{name:32} {of:22} {distinct}")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
