"""Measure a layer's gradients in one call against a call of each: src, weights and bias, over the suites and small.

python benchmarks/joint.py -o joint.csv --threads 1 2

Both write into arrays of the caller's, in turn; a row has the medians of their times and the median of their ratios,
round by round. A round is as many calls as take ROUND_MS, at least one. The small layer is 1x8x8x8 with 3x3 taps. Where
others keep the cores busy, ``--clock processor`` counts this process's time alone: of one thread, that is its time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from math import ceil
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

import convgrad
from convgrad.cli.bench.suites import cases, names, suite
from convgrad.host import cpu_model
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem

ROUNDS, ROUND_MS = 11, 5.0
SMALL = "BWD_W f32 NXC mb1ic8ih8oc8oh8kh3ph1nsmall"
Call = Callable[[], object]
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
# what is asked for: all, as in the middle of a network, or not src, as at its beginning
NEEDS = {
    "all": ("src", "weights", "bias"),
    "src and weights": ("src", "weights"),
    "weights and bias": ("weights", "bias"),
    "weights": ("weights",),
}
FUNCTIONS: dict[bool, tuple[Callable[..., Any], ...]] = {
    False: (
        convgrad.convolution_backward, convgrad.convolution_backward_data, convgrad.convolution_backward_weights,
    ),
    True: (
        convgrad.conv_transpose_backward, convgrad.conv_transpose_backward_data,
        convgrad.conv_transpose_backward_weights,
    ),
}  # fmt: skip


def calls(problem: Problem, needs: tuple[str, ...], threads: int | None) -> tuple[Call, Call]:
    """Return a layer's gradients in one call, and in a call of each."""
    conv, rng = problem.geometry, np.random.default_rng(0)
    assert isinstance(conv, Conv)
    transposed = find(problem.operator).transposed
    lies = dict(zip((*problem.operands, problem.output), problem.layouts, strict=True))
    data, order = lies.get("src") or lies["dst"], lies.get("weights") or ("XOI" if transposed else "XIO")
    shapes = [from_canonical(conv.src_shape, data), from_canonical(conv.dst_shape, data)]
    shapes = [*shapes[:: -1 if transposed else 1], from_canonical(conv.weights_shape, order)]
    dtype = problem.operand_format.dtype
    src, diff_dst, weights = (rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)
    channels = conv.src_channels if transposed else conv.dst_channels
    outs = {"src": np.empty_like(src), "weights": np.empty_like(weights), "bias": np.empty(channels, dtype)}
    outs = {name: outs[name] for name in needs}
    layer: dict[str, Any] = {"groups": conv.groups, "data_format": data, "weights_format": order, "threads": threads}
    layer["strides"], layer["dilations"] = [a.stride for a in conv.axes], [a.dilation for a in conv.axes]
    layer["pads_begin"], layer["pads_end"] = [a.pad_begin for a in conv.axes], [a.pad_end for a in conv.axes]
    joint, by_data, by_weights = FUNCTIONS[transposed]
    operands: tuple[Any, ...] = (diff_dst, weights, src.shape)
    if transposed:
        layer["output_padding"] = [a.src + a.pad_begin + a.pad_end - a.span for a in conv.axes]
        operands = (diff_dst, weights)

    def separate() -> None:
        if "src" in needs:
            by_data(*operands, out=outs["src"], **layer)
        if "weights" in needs:
            by_weights(src, diff_dst, weights.shape, out=outs["weights"], **layer)
        if "bias" in needs:
            convgrad.bias_add_backward(diff_dst, data_format=data, threads=threads, out=outs["bias"])

    return lambda: joint(src, diff_dst, weights, needs=needs, out=outs, **layer), separate


def mean_ms(call: Call, loops: int, clock: str) -> float:
    """Return the time of one of so many calls."""
    now = CLOCKS[clock]
    begin = now()
    for _ in range(loops):
        call()
    return 1e3 * (now() - begin) / loops


def measured(joint: Call, separate: Call, rounds: int, clock: str) -> tuple[float, float, float]:
    """Return the medians of both times, and of their ratio, from rounds in which either goes first in turn."""
    joint()
    loops = max(1, ceil(ROUND_MS / mean_ms(separate, 3, clock)))
    times: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        first, second = (joint, separate) if number % 2 else (separate, joint)
        pair = mean_ms(first, loops, clock), mean_ms(second, loops, clock)
        if number:  # the first is to warm up
            times.append(pair if number % 2 else pair[::-1])
    ours, theirs = zip(*times, strict=True)
    return median(ours), median(theirs), median(one / other for one, other in times)


def layers(chosen: list[str], types: list[str]) -> Iterator[tuple[str, str, Problem]]:
    """Yield each layer's suite, problem line and problem, the small one first."""
    for case in cases("small", [SMALL], (), types):
        yield "small", case.text, case.problem
    for name in chosen:
        for case in cases(name, suite(name), (), types):
            yield name, case.text, case.problem


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure a layer's gradients in one call against a call of each.")
    parser.add_argument("--suite", nargs="*", default=list(names()), help="none: the small layer alone")
    parser.add_argument("--types", nargs="*", default=["f32"])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 0], help="0: what is the default")
    parser.add_argument("--needs", nargs="*", choices=list(NEEDS), default=["all"])
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--most-ms", type=float, default=1e9, help="leave out what takes longer by a call of each")
    options = asked(parser)
    rows: list[dict[str, Any]] = []
    print(cpu_model())
    for threads in options.threads:
        for name, text, problem in layers(options.suite, options.types):
            for needs in options.needs:
                joint, separate = calls(problem, NEEDS[needs], threads or None)
                separate()  # compiles
                if mean_ms(separate, 1, options.clock) > options.most_ms:
                    continue
                ours, theirs, ratio = measured(joint, separate, options.rounds, options.clock)
                rows.append(
                    {
                        "cpu": cpu_model(),
                        "suite": name,
                        "case": text,
                        "needs": needs,
                        "threads": threads or "default",
                        "clock": options.clock,
                        "joint_ms": f"{ours:.4g}",
                        "separate_ms": f"{theirs:.4g}",
                        "ratio": f"{ratio:.4f}",
                    }
                )
                words = f"{text:72} {needs:16} {threads or 'default':7}"
                print(f"{words} {ours:9.4g} ms {theirs:9.4g} ms {ratio:7.3f}", flush=True)
    for name in dict.fromkeys(row["suite"] for row in rows):
        ratios = [float(row["ratio"]) for row in rows if row["suite"] == name]
        print(f"{name:14} {len(ratios):4} rows, median ratio {median(ratios):.3f}, largest {max(ratios):.3f}")
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
