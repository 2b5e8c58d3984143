"""Measure what PyTorch's idle threads cost: gradients of a layer alone, and behind an operation that PyTorch cut.

OMP_WAIT_POLICY=PASSIVE python benchmarks/torch_threads.py -o torch_threads.csv, and without

Threads of OpenMP look for work for a while after each operation, on cores that ours would use: what "behind relu" takes
beyond "autograd" and "relu" is what that costs. A figure is the median
of ROUNDS means of CALLS calls; whoever is measured takes a round in turn, behind one that is not counted.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from rows import asked, write_rows
from small_calls import mean_us

from convgrad import torch as ours
from convgrad.host import cpu_model
from convgrad.torch import kernels

CALLS, ROUNDS = 3, 31
SHAPES = ((8, 64, 28, 28), (64, 64, 3, 3))
GEOMETRY = ((1, 1), (1, 1), (1, 1), 1, False)  # strides, pads, dilations, groups, the layout of memory
Call = Callable[[], object]


def contenders() -> dict[str, Call]:
    """Return the calls: kernels alone, by autograd, behind an operation of PyTorch's, and PyTorch's own."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator).requires_grad_() for shape in SHAPES)
    v = torch.randn(SHAPES[0], generator=generator)

    def gradients(y: Any) -> Call:
        return lambda: torch.autograd.grad(y, (x, w), v, retain_graph=True)

    def alone() -> None:
        kernels.data_gradient(v, w, None, SHAPES[0][2:], *GEOMETRY)
        kernels.weight_gradient(x, v, SHAPES[1][2:], *GEOMETRY)

    by_autograd = gradients(ours.conv2d(x, w, padding=1))
    return {
        "kernels": alone,
        "autograd": by_autograd,
        "behind relu": lambda: (torch.relu(v), by_autograd()),
        "relu": lambda: torch.relu(v),
        "PyTorch's": gradients(torch.nn.functional.conv2d(x, w, padding=1)),
    }


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what PyTorch's idle threads cost.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    calls, policy = contenders(), os.environ.get("OMP_WAIT_POLICY", "default")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            call()
            times[name].append(mean_us(call, CALLS) / 1e3)
    print(f"{cpu_model()}, PyTorch {torch.__version__}, OMP_WAIT_POLICY {policy}")
    rows: list[dict[str, object]] = []
    for name, each in times.items():
        ratio = median(a / b for a, b in zip(each, times["kernels"], strict=True))
        print(f"{name:12}{median(each):8.2f} ms, over the kernels {ratio:.2f}")
        row: dict[str, object] = {"call": name, "policy": policy, "ms": f"{median(each):.3f}", "ratio": f"{ratio:.3f}"}
        rows.append(row | {"processor": cpu_model(), "torch": torch.__version__})
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
