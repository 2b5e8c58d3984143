"""Measure small calls: 1x8x8x8 with 3x3 taps, every role, by function and compiled, beside PyTorch where it is there.

python benchmarks/small_calls.py -o small_calls.csv

A figure is the median of ROUNDS means of CALLS calls, each into an array of the caller's (PyTorch makes one); whoever
is measured takes a round in turn. Without --threads that is the default: no argument, and all cores for PyTorch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

import convgrad
from convgrad.host import cpu_model, usable_cores

CALLS, ROUNDS = 500, 21
DATA, TAPS = (1, 8, 8, 8), 3
AXES = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
WEIGHTS_FORMAT = {False: {"NXC": "XIO", "NCX": "OIX"}, True: {"NXC": "XOI", "NCX": "IOX"}}
# role: operator, function, what it solves for, transposed
ROLES = {
    "forward": ("Convolution", convgrad.convolution, "dst", False),
    "data gradient": ("ConvolutionBackwardData", convgrad.convolution_backward_data, "src", False),
    "weight gradient": ("ConvolutionBackwardWeights", convgrad.convolution_backward_weights, "weights", False),
    "transposed forward": ("ConvTranspose", convgrad.conv_transpose, "dst", True),
    "transposed data gradient": ("ConvTransposeBackwardData", convgrad.conv_transpose_backward_data, "src", True),
    "transposed weight gradient": (
        "ConvTransposeBackwardWeights", convgrad.conv_transpose_backward_weights, "weights", True,
    ),
}  # fmt: skip
Call = Callable[[], object]


def ours(role: str, layout: str, threads: int | None) -> Iterator[tuple[str, Call]]:
    """Yield the form and the call of each way there is to call an operator."""
    operator, function, solves_for, transposed = ROLES[role]
    rng, channels = np.random.default_rng(0), DATA[-1]
    kernel = (TAPS, TAPS, channels, channels) if layout == "NXC" else (channels, channels, TAPS, TAPS)
    shapes = (DATA, DATA) if solves_for == "weights" else (DATA, kernel)
    inputs: list[Any] = [rng.standard_normal(shape, np.float32) for shape in shapes]
    out = np.empty(kernel if solves_for == "weights" else DATA, np.float32)
    given = [*inputs, out.shape] if solves_for == "weights" or operator == "ConvolutionBackwardData" else inputs
    attributes = AXES | {"data_format": layout, "weights_format": WEIGHTS_FORMAT[transposed][layout]}
    compiled = convgrad.compile(operator, *given, threads=threads, **attributes)
    formats = {name: value for name, value in attributes.items() if isinstance(value, str)}
    yield "function", partial(function, *given, pads_begin=1, pads_end=1, out=out, threads=threads, **formats)
    yield "compiled", partial(compiled, *inputs, out=out)


def torch_call(role: str, layout: str) -> Call:
    """Return PyTorch's call of the same role, in the layout of memory that is meant."""
    import torch  # noqa: PLC0415 - an extra

    _, _, solves_for, transposed = ROLES[role]
    memory = torch.channels_last if layout == "NXC" else torch.contiguous_format
    channels = DATA[-1]
    data, grad = (torch.randn(1, channels, *DATA[1:3]).contiguous(memory_format=memory) for _ in range(2))
    weights = torch.randn(channels, channels, TAPS, TAPS).contiguous(memory_format=memory)
    one, zero = [1, 1], [0, 0]
    if solves_for == "dst":
        return lambda: torch.ops.aten.convolution(data, weights, None, one, one, one, transposed, zero, 1)
    mask = [solves_for == "src", solves_for == "weights", False]
    return lambda: torch.ops.aten.convolution_backward(
        grad, data, weights, None, one, one, one, transposed, zero, 1, mask
    )


def mean_us(call: Call, calls: int) -> float:
    """Return the time of one of so many calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - begin) / calls


def measured(contenders: dict[str, Call], calls: int, rounds: int) -> dict[str, float]:
    """Return each contender's median, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            took = mean_us(call, calls)
            if number:  # the first is to warm up
                times[name].append(took)
    return {name: median(each) for name, each in times.items()}


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure small calls.")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 0], help="0: what is the default")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = asked(parser)
    peer, rows = find_spec("torch") is not None, []
    print(cpu_model())
    for threads in options.threads:
        if peer:
            import torch  # noqa: PLC0415 - an extra

            torch.set_num_threads(threads or len(usable_cores()))
        for layout in WEIGHTS_FORMAT[False]:
            for role in ROLES:
                contenders = dict(ours(role, layout, threads or None))
                if peer:
                    contenders["torch"] = torch_call(role, layout)
                found = measured(contenders, options.calls, options.rounds)
                theirs = f"{found['torch']:.2f}" if peer else ""
                for form in ("function", "compiled"):
                    words = f"{role:27} {form:9} {layout} {threads or 'default':8}"
                    print(f"{words}{found[form]:7.2f} us   PyTorch {theirs or 'not installed'}", flush=True)
                    rows.append(
                        {
                            "role": role,
                            "form": form,
                            "layout": layout,
                            "threads": threads or "default",
                            "us": f"{found[form]:.2f}",
                            "torch_us": theirs,
                        }
                    )
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
