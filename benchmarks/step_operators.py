"""Measure operators of training steps inside ``same_bits()``, compared with PyTorch: norms, activations, optimizers.

PYTHONPATH=src python benchmarks/step_operators.py -o benchmarks/results/step_operators.csv
PYTHONPATH=src python benchmarks/step_operators.py --table benchmarks/results/step_operators.csv

Both sides take turns in one process, on the same tensors. A row has the medians of the times, and of the ratios of
neighbouring calls: PyTorch's time / ours. ``--table`` prints the geometric means and the worst ratios as Markdown.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean, median

import torch
from rows import asked, write_rows
from torch.nn import functional
from torch_steps import FORMATS

from convgrad.cli.bench.measure import FmaPeak
from convgrad.host import cpu_model
from convgrad.torch import same_bits

IMAGES = (8, 32, 112, 112), (8, 144, 56, 56), (8, 240, 14, 14), (8, 1152, 7, 7)
ROWS = (25_088, 96), (6_272, 192), (1_568, 384), (392, 768)
_SHAPES = (8, 64, 56, 56), (4, 8, 128, 64), (4096, 256), (1024, 1024)
ELEMENTS = 1 << 22  # of the calls that are timed together
WARM_S = 0.05  # before each measurement, because entering and leaving the context empties caches
ATEN = torch.ops.aten
Call = Callable[[], object]


def _of_images(x: torch.Tensor, g: torch.Tensor) -> Iterator[tuple[str, Call]]:
    """Yield operators on images."""
    ones, zeros = torch.ones(x.shape[1]), torch.zeros(x.shape[1])
    state = x, ones, zeros, zeros.clone(), ones.clone(), True, 0.1, 1e-5
    _, mean, inverse = ATEN.native_batch_norm(*state)
    backward = g, x, ones, *state[3:5], mean, inverse, True, 1e-5, [True] * 3
    yield "batch norm", lambda: ATEN.native_batch_norm(*state)
    yield "batch norm, backward", lambda: ATEN.native_batch_norm_backward(*backward)
    yield "group norm", lambda: functional.group_norm(x, 8, ones, zeros)
    yield "SiLU", lambda: functional.silu(x)
    yield "SiLU, backward", lambda: ATEN.silu_backward(g, x)
    yield "sigmoid", lambda: torch.sigmoid(x)


def _of_rows(x: torch.Tensor, g: torch.Tensor) -> Iterator[tuple[str, Call]]:
    """Yield operators on rows."""
    ones, zeros, shape = torch.ones(x.shape[1]), torch.zeros(x.shape[1]), [x.shape[1]]
    _, mean, inverse = ATEN.native_layer_norm(x, shape, ones, zeros, 1e-5)
    yield "layer norm", lambda: ATEN.native_layer_norm(x, shape, ones, zeros, 1e-5)
    backward = g, x, shape, mean, inverse, ones, zeros, [True] * 3
    yield "layer norm, backward", lambda: ATEN.native_layer_norm_backward(*backward)
    yield "softmax", lambda: torch.softmax(x, -1)
    yield "GELU", lambda: functional.gelu(x)
    yield "GELU, backward", lambda: ATEN.gelu_backward(g, x)
    yield "GELU by tanh", lambda: functional.gelu(x, approximate="tanh")


def _of_parameters(x: torch.Tensor, g: torch.Tensor) -> Iterator[tuple[str, Call]]:
    """Yield normal random numbers, a sum, and steps of optimizers."""
    yield "randn", lambda: torch.randn(x.shape)
    yield "sum", x.sum
    for name, rule, fused in (
        ("SGD", torch.optim.SGD, False),
        ("SGD, fused", torch.optim.SGD, True),
        ("AdamW", torch.optim.AdamW, False),
        ("AdamW, fused", torch.optim.AdamW, True),
    ):
        parameter = torch.nn.Parameter(x.clone())
        parameter.grad = g
        momentum = {"momentum": 0.9} if rule is torch.optim.SGD else {}
        yield name, rule([parameter], 1e-3, weight_decay=1e-4, fused=fused, **momentum).step


def _of_networks() -> Iterator[tuple[str, str, int, Call]]:
    """Yield operators as networks call them: their names, the shape, the number of elements, and a call."""
    image, heads, words, scores = (torch.randn(shape) for shape in _SHAPES)
    labels, tokens = torch.arange(1024) % scores.shape[1], torch.arange(4096) * 7 % words.shape[1]
    shares, flat = scores.sigmoid(), scores.reshape(-1)
    steps, lstm, gru = torch.randn(100, 32, 128), torch.nn.LSTM(128, 256), torch.nn.GRU(128, 256)
    letters, text = torch.randn(100, 16, 32, requires_grad=True), torch.arange(16 * 20).reshape(16, 20) % 31 + 1

    def spelled() -> object:
        loss = functional.ctc_loss(letters.log_softmax(2), text, [100] * 16, [20] * 16)
        return torch.autograd.grad(loss, letters)

    perceptron = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    rule, digits, classes = torch.optim.Adam(perceptron.parameters()), torch.randn(64, 784), torch.arange(64) % 10

    def trained() -> object:
        rule.zero_grad()
        functional.cross_entropy(perceptron(digits), classes).backward()
        return rule.step()

    parameters = [torch.nn.Parameter(torch.randn(64, 64)) for _ in range(160)]
    for parameter in parameters:
        parameter.grad = torch.randn(64, 64)
    named: dict[str, tuple[torch.Tensor, Call]] = {
        "AdamW of 160 parameters": (torch.empty(160, 4096), torch.optim.AdamW(parameters).step),
        "step of an MLP": (digits, trained),
        "fused attention": (heads, lambda: functional.scaled_dot_product_attention(heads, heads, heads)),
        "bilinear interpolation": (image, lambda: functional.interpolate(image, scale_factor=2, mode="bilinear")),
        "adaptive pooling to 7x7": (image, lambda: functional.adaptive_avg_pool2d(image, 7)),
        "cross entropy": (scores, lambda: functional.cross_entropy(scores, labels)),
        "binary cross entropy": (scores, lambda: functional.binary_cross_entropy_with_logits(scores, shares)),
        "smooth L1": (scores, lambda: functional.smooth_l1_loss(scores, shares)),
        "embedding, backward": (words, lambda: ATEN.embedding_dense_backward(words, tokens, 1024, -1, False)),
        "index_add": (scores, lambda: torch.index_add(scores, 0, labels, shares)),
        "matrix product": (scores, lambda: scores @ shares),
        "matrix times vector": (scores, lambda: scores @ shares[0]),
        "inner product": (scores, lambda: torch.dot(flat, flat)),
        "sin": (scores, scores.sin),
        "LSTM and gradients": (steps, lambda: torch.autograd.grad(lstm(steps)[0].sum(), [*lstm.parameters()])),
        "GRU and gradients": (steps, lambda: torch.autograd.grad(gru(steps)[0].sum(), [*gru.parameters()])),
        "CTC loss and gradient": (letters, spelled),
    }
    for name, (tensor, call) in named.items():
        yield name, "x".join(map(str, tensor.shape)), tensor.numel(), call


def calls() -> Iterator[tuple[str, str, int, Call]]:
    """Yield operators: their names, the shape and format, the number of elements, and a call."""
    for shape in IMAGES:
        for form, memory_format in FORMATS.items():
            x, g = (torch.randn(shape).to(memory_format=memory_format) for _ in range(2))
            for name, call in _of_images(x, g):
                yield name, f"{'x'.join(map(str, shape))} {form}", x.numel(), call
    for kind, shapes in ((_of_rows, ROWS), (_of_parameters, ((256, 256, 3, 3), (2048, 512)))):
        for shape in shapes:
            x, g = torch.randn(shape), torch.randn(shape)
            for name, call in kind(x, g):
                yield name, "x".join(map(str, shape)), x.numel(), call
    yield from _of_networks()


def measured(call: Call, repeats: int, rounds: int) -> tuple[float, float, float]:
    """Return the medians of PyTorch's time in ms, of ours, and of PyTorch's / ours."""

    def seconds() -> float:
        end = time.perf_counter() + WARM_S
        while time.perf_counter() < end:
            call()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - begin) / repeats

    taken, session = [], same_bits()
    for _ in range(rounds):
        theirs = seconds()
        session.start()
        try:
            ours = seconds()
        finally:
            session.stop()
        taken.append((1e3 * theirs, 1e3 * ours, theirs / ours))
    theirs, ours, ratio = (median(each) for each in zip(*taken, strict=True))
    return theirs, ours, ratio


def table(path: Path) -> str:
    """Return the geometric mean and the worst ratio of each operator as Markdown."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["operator"], row["threads"]].append(float(row["ratio"]))
    lines = ["| operator | threads | mean | worst |", "|---|---|---|---|"]
    lines += [f"| {name} | {n} | {geometric_mean(each):.2f} | {min(each):.2f} |" for (name, n), each in found.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[], help="names of operators, if not all are measured")
    parser.add_argument("--table", type=Path, help="print the means of such a file as Markdown, and measure nothing")
    options = asked(parser)
    if options.table:
        print(table(options.table))
        return
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        peak = FmaPeak(threads, "f32")
        for name, place, elements, call in calls():
            if options.only and name not in options.only:
                continue
            theirs, ours, ratio = measured(call, max(1, ELEMENTS // elements), options.rounds)
            row = {"operator": name, "tensor": place, "threads": threads, "fma_gflops": round(peak(), 1)}
            row |= {"torch_ms": round(theirs, 4), "ours_ms": round(ours, 4), "ratio": round(ratio, 3)}
            rows.append(row | {"torch": torch.__version__, "processor": cpu_model()})
        print(f"{threads} threads: done", flush=True)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
