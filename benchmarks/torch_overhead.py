"""Measure a small layer, 1x8x8x8 with 3x3 taps: convgrad.torch beside torch.nn.functional, eager and compiled.

python benchmarks/torch_overhead.py -o torch_overhead.csv

A figure is the median of ROUNDS means of CALLS calls, a ratio the median of the rounds' ratios; whoever is measured
takes a round in turn. What a call costs beside its kernels is what the kernels alone leave: they are measured too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from rows import asked, write_rows
from small_calls import mean_us

from convgrad import torch as ours
from convgrad.host import cpu_model, usable_cores
from convgrad.torch import kernels, passes
from convgrad.torch.attributes import OpAttributes

CALLS, ROUNDS = 300, 41
DATA, TAPS = (1, 8, 8, 8), 3
Call = Callable[[], object]
ATTRIBUTES = OpAttributes((1, 1), (1, 1), (1, 1), None, (1, 1), 1, False)


def layer(function: Any, grad: bool, backward: bool, compiled: bool) -> Call:
    """Return the call of a layer with a bias, or of that and its gradients."""
    generator = torch.Generator().manual_seed(0)
    channels = DATA[1]
    shapes = (DATA, (channels, channels, TAPS, TAPS), (channels,), DATA)
    *operands, v = (torch.randn(shape, generator=generator) for shape in shapes)
    operands = [t.requires_grad_(grad) for t in operands]
    forward = partial(function, padding=1)
    if compiled:
        forward = torch.compile(forward, fullgraph=True, dynamic=False)

    def both() -> object:
        return torch.autograd.grad(forward(*operands), operands, v)

    return both if backward else lambda: forward(*operands)


def alone(backward: bool) -> Call:
    """Return the call of the kernels, without functions, dispatcher and autograd."""
    x, w, b, v = torch.randn(DATA), torch.randn(DATA[1], DATA[1], TAPS, TAPS), torch.randn(DATA[1]), torch.randn(DATA)

    def forward() -> None:
        kernels.compute(passes.forward(x, w, b, ATTRIBUTES))

    def both() -> None:
        forward()
        kernels.compute(passes.data_gradient(v, w, None, None, ATTRIBUTES))
        kernels.compute(passes.weight_gradient(x, v, None, (TAPS, TAPS), ATTRIBUTES))
        kernels.compute(passes.bias_gradient(v))

    return both if backward else forward


CASES = {  # what is done: with gradients to come, with them computed
    "forward": (False, False),
    "forward, gradients to come": (True, False),
    "forward and backward": (True, True),
}


def measured(contenders: dict[str, Call], calls: int, rounds: int) -> dict[str, list[float]]:
    """Return each contender's times, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            took = mean_us(call, calls)
            if number:  # the first is to warm up
                times[name].append(took)
    return times


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure a small layer in PyTorch.")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 0], help="0: as many as there are cores")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--eager-only", action="store_true", help="compile nothing, which takes a compiler of C++")
    options = asked(parser)
    rows: list[dict[str, object]] = []
    print(f"{cpu_model()}, PyTorch {torch.__version__}")
    for threads in options.threads:
        torch.set_num_threads(threads or len(usable_cores()))
        for form in ("eager",) if options.eager_only else ("eager", "compiled"):
            for case, (grad, backward) in CASES.items():
                contenders = {
                    name: layer(function, grad, backward, form == "compiled")
                    for name, function in (("ours", ours.conv2d), ("torch", torch.nn.functional.conv2d))
                } | {"kernels": alone(backward)}
                found = measured(contenders, options.calls, options.rounds)
                us = {name: median(times) for name, times in found.items()}
                ratio = median(a / b for a, b in zip(found["ours"], found["torch"], strict=True))
                told = ", ".join(f"{name} {us[name]:6.2f} us" for name in us)
                print(f"{form:9}{case:27}{threads or 'default':8} {told}, ours / PyTorch's {ratio:.2f}", flush=True)
                row = {"form": form, "case": case, "threads": threads or "default"}
                row |= {f"{name}_us": f"{value:.2f}" for name, value in us.items()}
                rows.append(row | {"ratio": f"{ratio:.3f}", "processor": cpu_model(), "torch": torch.__version__})
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
