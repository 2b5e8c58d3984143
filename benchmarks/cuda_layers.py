"""Measure convolutions on a GPU: cuDNN's and ours, all passes of dense layers, channels last and first.

PYTHONPATH=src python benchmarks/cuda_layers.py -o benchmarks/results/cuda_layers.csv
PYTHONPATH=src python benchmarks/cuda_layers.py --types bf16,f16 --layers vgg16_3_2,3_3x3 --passes FWD_D
PYTHONPATH=src python benchmarks/cuda_layers.py --tiles 128x128,64x64 --layouts NXC
PYTHONPATH=src:. python benchmarks/cuda_layers.py --emulated --batch 1 --layers 5_3x3

cuDNN chooses its algorithms by measurement and does not use TF32. Both libraries take turns on the same tensors. Data
and weights have the same memory format. Operands may still be in the L2 cache. Times are those of CUDA events around
several calls, and include the time between launches. A row has the medians of both times and of the rounds' ratios.

Results are compared with those of the CPU: the first image, or a weight gradient with few
multiply-adds. The program exits with 1 if any bit differs. With ``--emulated``, PyTorch and the GPU's kernels run on
the CPU, which tests the program; the times then mean nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from multiprocessing import get_context
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import torch
from rows import asked, write_rows

from convgrad import engines
from convgrad.arrays.libraries.torch import array_of, formats_of
from convgrad.cli.bench.suites import cases, suite
from convgrad.plan.cuda import plan as plans
from convgrad.plan.cuda.plan import DevicePlan, in_order
from convgrad.plan.reach import conv_of
from convgrad.spec.problem import Problem, canonical_shapes, of_images

LAYERS = {
    "resnet50": (
        "stem", "2_3x3", "2_expand", "2b_reduce", "3a_3x3_s2", "3_3x3", "3_expand", "4_3x3", "4a_shortcut_s2", "5_3x3",
    ),
    "dense": ("vgg16_1_2", "vgg16_3_2", "vgg16_4_2"),
}  # fmt: skip
PASSES = ("FWD_D", "BWD_D", "BWD_W")
LAYOUTS = {"NXC": torch.channels_last, "NCX": torch.contiguous_format}
DTYPES = {fmt.name: dtype for dtype, fmt in formats_of(torch).items()}
SAMPLE_MS = 4.0  # of several calls
MIN_ROUNDS = 3
CHECKED = 25_000_000_000  # multiply-adds of a problem that the CPU computes
PEAK = 8192  # rows and columns of the matrix product that measures the peak
CLOCKS = ("nvidia-smi", "--query-gpu=clocks.sm,power.draw,name", "--format=csv,noheader,nounits", "-lms", "250")

Tensor = Any


def strides_of(problem: Problem, layout: str) -> tuple[tuple[int, ...], ...]:
    """Return the strides of a problem's operands and output in bytes, in canonical order."""
    dtype, memory_format = DTYPES[problem.operand_format.name], LAYOUTS[layout]
    made = [
        torch.empty(shape, dtype=dtype, device="meta", memory_format=memory_format)
        for shape in canonical_shapes(problem)
    ]
    return tuple(tuple(stride * tensor.element_size() for stride in tensor.stride()) for tensor in made)


def build(problems: Sequence[tuple[Problem, str]]) -> None:
    """Compile the kernels of all problems: the PTX in several processes, and the rest in several threads.

    The driver keeps compiled kernels in its cache.
    """
    from convgrad.engines.cuda import driver, engine  # noqa: PLC0415
    from convgrad.engines.cuda.kernels import ptx  # noqa: PLC0415

    begin, device = time.perf_counter(), driver.device(0)
    made = [plans.plan(problem, strides_of(problem, layout), device.processors) for problem, layout in problems]
    specs = list({launch.spec: None for one in made for launch in one.launches})
    with ProcessPoolExecutor(mp_context=get_context("fork")) as processes:
        texts = dict(zip(specs, processes.map(ptx, specs), strict=True))
    vars(engine)["ptx"] = texts.__getitem__
    middle = time.perf_counter()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: device.function(texts[one], one.name, one.threads, one.shared_bytes), specs))
    end = time.perf_counter()
    print(f"{len(specs)} kernels: PTX {middle - begin:.1f} s, driver {end - middle:.1f} s", flush=True)


class Layer:
    """A problem, its tensors in canonical order, and calls of both libraries."""

    def __init__(self, problem: Problem, layout: str, device: str) -> None:
        self.problem, self.conv, self.strides = problem, conv_of(problem), strides_of(problem, layout)
        generator = torch.Generator(device).manual_seed(0)
        dtype, memory_format = DTYPES[problem.operand_format.name], LAYOUTS[layout]
        *shapes, shape = canonical_shapes(problem)
        self.operands = [
            torch.randn(each, generator=generator, device=device).to(dtype).contiguous(memory_format=memory_format)
            for each in shapes
        ]
        self.out = torch.empty(shape, dtype=dtype, device=device, memory_format=memory_format)
        self.given = dict(zip(problem.operands, self.operands, strict=True)) | {problem.output: self.out}

    def theirs(self) -> None:
        """Compute the result by PyTorch."""
        axes = self.conv.axes
        settings = ([a.stride for a in axes], [a.pad_begin for a in axes], [a.dilation for a in axes], False, [0, 0], 1)
        src, dst, weights = (self.given[name] for name in ("src", "dst", "weights"))
        if self.problem.solves_for == "dst":
            torch.ops.aten.convolution(src, weights, None, *settings)
            return
        of_source = self.problem.solves_for == "src"
        torch.ops.aten.convolution_backward(dst, src, weights, None, *settings, [of_source, not of_source, False])

    def on_gpu(self) -> tuple[DevicePlan, Callable[[], None]]:
        """Return our plan and a function that computes the result."""
        from convgrad.engines.cuda.engine import DeviceCall  # noqa: PLC0415 - with --emulated, there is no device

        call = DeviceCall(self.problem, self.strides, 0)
        table = torch.frombuffer(bytearray(call.take_table()), dtype=torch.uint8).cuda()
        scratch = torch.empty(call.scratch_bytes + 1, dtype=torch.uint8, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        places = [tensor.data_ptr() for tensor in self.operands]

        def ours() -> None:
            call.launch(places, self.out.data_ptr(), table.data_ptr(), scratch.data_ptr(), stream)

        return call.plan, ours

    def emulated(self) -> tuple[DevicePlan, Callable[[], None]]:
        """Return our plan for a small GPU and a function that computes the result on the CPU."""
        from tests.support import emulated  # noqa: PLC0415 - needs the repository's root

        made = plans.plan(self.problem, self.strides, emulated.PROCESSORS)
        operands, out = [array_of(torch, tensor) for tensor in self.operands], array_of(torch, self.out)
        return made, lambda: emulated.run(self.problem, operands, out, made)

    def same_bits(self) -> str:
        """Return whether the result has the bits of the CPU's, "yes" or "no"; the empty string if it is too large."""
        problem, operands, result = self.problem, list(self.operands), self.out
        if problem.solves_for != "weights":  # the first image
            problem, result = of_images(problem, 1), result[:1]
            operands = [t if name == "weights" else t[:1] for name, t in zip(problem.operands, operands, strict=True)]
        if conv_of(problem).multiply_adds > CHECKED:
            return ""
        given, got = [array_of(torch, tensor.cpu()) for tensor in operands], array_of(torch, result.cpu())
        expected = np.empty_like(got)
        engines.execute(problem, given, expected)
        return "yes" if expected.tobytes() == got.tobytes() else "no"


def milliseconds(call: Callable[[], None], count: int, is_emulated: bool) -> float:
    """Return the time of one of several calls."""
    if is_emulated:
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / count


def measured(calls: Sequence[Callable[[], None]], seconds: float, is_emulated: bool) -> list[tuple[float, ...]]:
    """Return the times of the calls, which take turns, per round."""
    counts = []
    for call in calls:
        call()  # compiles, and measures algorithms
        counts.append(max(1, int(SAMPLE_MS / milliseconds(call, 1, is_emulated))))
    rounds: list[tuple[float, ...]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < MIN_ROUNDS or time.perf_counter() < end:
        rounds.append(tuple(milliseconds(*one, is_emulated) for one in zip(calls, counts, strict=True)))
    return rounds


def row_of(problem: Problem, name: str, line: tuple[str, str, str], options: Namespace) -> dict[str, Any]:
    """Return the figures of a problem."""
    direction, kind, layout = line
    layer = Layer(problem, layout, "cpu" if options.emulated else "cuda")
    made, ours = layer.emulated() if options.emulated else layer.on_gpu()
    rounds = measured((layer.theirs, ours), options.seconds, options.emulated)
    times = [median(one) for one in zip(*rounds, strict=True)]
    tflops = [2 * layer.conv.multiply_adds / 1e9 / one for one in times]
    return {
        "layer": name, "pass": direction, "layout": layout, "type": kind, "batch": layer.conv.batch,
        "cudnn_ms": round(times[0], 4), "ours_ms": round(times[1], 4),
        "ratio": round(median(a / b for a, b in rounds), 3),
        "cudnn_tflops": round(tflops[0], 2), "ours_tflops": round(tflops[1], 2), "rounds": len(rounds),
        "same_bits": "" if options.unchecked else layer.same_bits(), "launches": "; ".join(in_order(made)),
    }  # fmt: skip


@contextmanager
def clocks(is_emulated: bool) -> Iterator[None]:
    """Print the SM clock and the power during a ``with`` block."""
    if is_emulated or shutil.which(CLOCKS[0]) is None:
        yield
        return
    with subprocess.Popen(CLOCKS, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()
            print_clocks(process.communicate()[0])


def print_clocks(text: str) -> None:
    """Print the figures of nvidia-smi's lines."""
    samples = [line.split(", ") for line in text.splitlines() if line.count(", ") == 2]
    for at, unit in enumerate(("MHz SM clock", "W")):
        values = sorted(float(one[at]) for one in samples if re.fullmatch(r"[\d.]+", one[at]))
        if values:
            extremes = f"from {values[0]:.0f} to {values[-1]:.0f}"
            print(f"{samples[0][2]}: {unit} {extremes}, median {median(values):.0f}, {len(values)} samples", flush=True)


def print_peak() -> None:
    """Print the speed of a large f32 matrix product of PyTorch, which stands for the multiply-add peak."""
    a, b = (torch.randn(PEAK, PEAK, device="cuda") for _ in range(2))
    times = [milliseconds(lambda: torch.mm(a, b), 1, False) for _ in range(8)]
    print(f"torch.mm of {PEAK}x{PEAK} f32 without TF32: {2 * PEAK**3 / 1e9 / min(times[2:]):.1f} TFLOP/s", flush=True)


def print_means(rows: Sequence[dict[str, Any]]) -> None:
    """Print geometric means of the ratios by type, pass and layout."""
    for key in sorted({(row["type"], row["pass"], row["layout"]) for row in rows}):
        ratios = [row["ratio"] for row in rows if (row["type"], row["pass"], row["layout"]) == key]
        extremes = f"from {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{' '.join(key)}: geometric mean of cudnn/ours {geometric_mean(ratios):.3f}, {extremes}")
    print(f"all {len(rows)} rows: {geometric_mean(row['ratio'] for row in rows):.3f}")


def tiles_of(text: str) -> tuple[tuple[int, int], ...]:
    """Return tiles such as 128x64,64x64 as pairs of rows and columns."""
    pairs = (one.split("x") for one in text.split(","))
    return tuple((int(rows), int(columns)) for rows, columns in pairs)


def options_of() -> Namespace:
    """Return the arguments."""
    parser = ArgumentParser(description="Measure dense convolutions on a GPU: cuDNN's and ours.")
    names = ",".join(name for each in LAYERS.values() for name in each)
    parser.add_argument("--layers", default=names, help="names of layers (default: %(default)s)")
    parser.add_argument("--passes", default=",".join(PASSES), help="passes (default: %(default)s)")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="NXC is channels last (default: %(default)s)")
    parser.add_argument("--types", default="f32", help="f32, bf16 and f16 (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.15, help="seconds per row (default: %(default)s)")
    parser.add_argument("--tiles", type=tiles_of, help="allow only these tiles, for example 128x128,64x64")
    parser.add_argument("--unchecked", action="store_true", help="compare no bits with the CPU's")
    parser.add_argument("--emulated", action="store_true", help="run everything on the CPU, to test the program")
    return asked(parser)


def main() -> int:
    """Print a line per row and the means; return the exit code."""
    options, started = options_of(), time.perf_counter()
    if options.tiles:
        plans.TILES = options.tiles
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False
    chosen, rows = options.layers.split(","), []
    choices = (text.split(",") for text in (options.types, options.passes, options.layouts))
    lines = [line for name in LAYERS for line in suite(name) if line.rpartition(":")[2] in chosen]
    named = [
        (of_images(case.problem, options.batch), case.name.rpartition(":")[2], (direction, kind, layout))
        for kind, direction, layout in product(*choices)
        for case in cases("", lines, [direction], [kind], [layout])
    ]
    with clocks(options.emulated):
        if not options.emulated:
            build([(problem, layout) for problem, _, (_, _, layout) in named])
            print_peak()
        for problem, name, line in named:
            row = row_of(problem, name, line, options)
            rows.append(row)
            shown = [str(value) for key, value in row.items() if key not in ("batch", "rounds")]
            print(f"{time.perf_counter() - started:4.0f} s", *shown, flush=True)
            if options.output is not None and len(rows) % 26 == 0:
                write_rows(options.output, rows)  # a run that is stopped leaves rows
    print_means(rows)
    if options.output is not None:
        write_rows(options.output, rows)
    wrong = [f"{row['layer']} {row['pass']} {row['layout']}" for row in rows if row["same_bits"] == "no"]
    equal = sum(row["same_bits"] == "yes" for row in rows)
    print(f"{equal} rows have the CPU's bits; different: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
